// Formulas for markdown-it: $a$, $$a$$, \(a\) and \[a\], in a line or as lines of their own. Prices stay prices: a
// dollar opens only before something that is no space, closes only after such, and never before a digit. What is not
// closed is text. A mark whose end was not found is remembered, so that many of them cost no more than one.
import type { MarkdownIt, ParserBlock, ParserInline } from 'markdown-it';

type Inline = Parameters<ParserInline['ruler']['push']>[1];
type Lines = Parameters<ParserBlock['ruler']['push']>[1];

const kPairs: [string, string][] = [['$$', '$$'], ['$', '$'], ['\\(', '\\)'], ['\\[', '\\]']];
const kLongest = 10_000;

function escaped(text: string, at: number): boolean {
  let slashes = 0;
  while (text[at - 1 - slashes] === '\\') ++slashes;
  return slashes % 2 === 1;
}

// Where `end` stands at or after `from`, not escaped; -1: nowhere near.
function closing(text: string, end: string, from: number): number {
  for (let at = text.indexOf(end, from); at >= 0 && at - from < kLongest; at = text.indexOf(end, at + 1)) {
    if (!escaped(text, at)) return at;
  }
  return -1;
}

const inline: Inline = (state, silent) => {
  const { src, pos } = state;
  if (src[pos] !== '$' && src[pos] !== '\\') return false;
  const pair = kPairs.find(([open]) => src.startsWith(open, pos));
  if (!pair) return false;
  const [open, close] = pair;
  const missing = ((state.env as { missing?: Map<string, string> }).missing ??= new Map());
  if (missing.get(open) === src) return false;
  const from = pos + open.length;
  const at = closing(src, close, from);
  if (at < 0) {
    missing.set(open, src);
    return false;
  }
  const tex = src.slice(from, at);
  if (!tex.trim() || (open === '$' && (/^\s|\s$/.test(tex) || /\d/.test(src[at + 1] ?? '')))) return false;
  if (!silent) {
    const token = state.push(open === '$' || open === '\\(' ? 'math_inline' : 'math_display', 'math', 0);
    token.content = tex;
    token.markup = open;
  }
  state.pos = at + close.length;
  return true;
};

const lines: Lines = (state, first, last, silent) => {
  const begin = (state.bMarks[first] ?? 0) + (state.tShift[first] ?? 0);
  const open = state.src.slice(begin, begin + 2);
  if (open !== '$$' && open !== '\\[') return false;
  if ((state.sCount[first] ?? 0) - state.blkIndent >= 4) return false;
  const close = open === '$$' ? '$$' : '\\]';
  const found: string[] = [];
  for (let line = first; line < last; ++line) {
    const from = line === first ? begin + 2 : (state.bMarks[line] ?? 0) + Math.min(state.tShift[line] ?? 0, state.blkIndent);
    const text = state.src.slice(from, state.eMarks[line]);
    if (line > first && (text.trim() === '' || (state.sCount[line] ?? 0) < state.blkIndent)) return false;
    const trimmed = text.trimEnd();
    if (!trimmed.endsWith(close) || escaped(trimmed, trimmed.length - 2)) {
      found.push(text);
      continue;
    }
    found.push(trimmed.slice(0, -2));
    if (found.join('\n').includes(close) || !found.join('').trim()) return false;
    if (silent) return true;
    const token = state.push('math_block', 'math', 0);
    token.block = true;
    token.content = found.join('\n');
    token.map = [first, line + 1];
    token.markup = open;
    state.line = line + 1;
    return true;
  }
  return false;
};

export function math(md: MarkdownIt): void {
  md.inline.ruler.before('escape', 'math', inline);
  md.block.ruler.before('fence', 'math', lines, { alt: ['paragraph', 'reference', 'blockquote', 'list'] });
}
