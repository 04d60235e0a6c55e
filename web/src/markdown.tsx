// Markdown as elements, never as HTML text: what a model writes can become a paragraph, a list, a table or a link with a
// harmless scheme, and nothing else. One pass over the lines; inline marks are matched within a line's text with bounded
// look-ahead, so the time is linear. An open fence at the end is code still being written.
import type { ComponentChildren, VNode } from 'preact';
import { useCopy } from './copy';
import { CopyIcon } from './icons';
import { memo } from './memo';

const kDeepest = 6; // quotes and lists inside each other
const kLongestMark = 4000; // characters an inline mark may span

export function safeLink(target: string): string | null {
  const trimmed = target.trim();
  return /^(https?:\/\/|mailto:)[^\s"'<>\\]+$/i.test(trimmed) ? trimmed : null;
}

type Inline = ComponentChildren[];

// The end of a mark that opened before `from`, or -1.
function closing(text: string, mark: string, from: number): number {
  const limit = Math.min(text.length, from + kLongestMark);
  for (let at = text.indexOf(mark, from); at >= 0 && at < limit; at = text.indexOf(mark, at + 1)) {
    if (at > from && !/\s/.test(text[at - 1] as string) && text[at - 1] !== '\\') return at;
  }
  return -1;
}

function link(text: string, at: number, depth: number): { node: VNode; end: number } | null {
  const head = text.slice(at, at + 2000).match(/^\[([^\]\n]{1,1000})\]\(([^()\s]{1,900})(?:\s+"[^"\n]*")?\)/);
  if (!head) return null;
  const target = safeLink(head[2] as string);
  if (!target) return null;
  const node = (
    <a href={target} target="_blank" rel="noopener noreferrer nofollow">
      {inline(head[1] as string, depth + 1)}
    </a>
  );
  return { node, end: at + head[0].length };
}

function bareLink(text: string, at: number): { node: VNode; end: number } | null {
  const head = text.slice(at, at + 2000).match(/^https?:\/\/[^\s<>"'`\\]+[^\s<>"'`\\.,;:!?)\]*_]/i);
  if (!head) return null;
  const node = (
    <a href={head[0]} target="_blank" rel="noopener noreferrer nofollow">
      {head[0]}
    </a>
  );
  return { node, end: at + head[0].length };
}

const kMarks: [string, (inside: Inline) => VNode][] = [
  ['***', (inside) => <strong><em>{inside}</em></strong>],
  ['**', (inside) => <strong>{inside}</strong>],
  ['__', (inside) => <strong>{inside}</strong>],
  ['~~', (inside) => <del>{inside}</del>],
  ['*', (inside) => <em>{inside}</em>],
  ['_', (inside) => <em>{inside}</em>],
];

function codeSpan(text: string, at: number): { node: VNode; end: number } | null {
  let ticks = 1;
  while (text[at + ticks] === '`') ++ticks;
  const fence = '`'.repeat(ticks);
  const end = text.indexOf(fence, at + ticks);
  if (end < 0 || end - at > kLongestMark) return null;
  return { node: <code>{text.slice(at + ticks, end).trim() || ' '}</code>, end: end + ticks };
}

function marked(text: string, at: number, depth: number): { node: VNode; end: number } | null {
  for (const [mark, make] of kMarks) {
    if (!text.startsWith(mark, at)) continue;
    const from = at + mark.length;
    if (from >= text.length || /\s/.test(text[from] as string)) return null;
    if (mark.startsWith('_') && at > 0 && /\w/.test(text[at - 1] as string)) return null; // snake_case
    const end = closing(text, mark, from);
    if (end < 0) continue;
    if (mark.startsWith('_') && /\w/.test(text[end + mark.length] ?? '')) return null;
    return { node: make(inline(text.slice(from, end), depth + 1)), end: end + mark.length };
  }
  return null;
}

export function inline(text: string, depth = 0): Inline {
  if (depth > kDeepest) return [text];
  const out: Inline = [];
  let plain = '';
  let misses = 0; // marks without an end; after many of them the rest is plain, which keeps the time linear
  for (let at = 0; at < text.length; ) {
    const c = text[at] as string;
    let found: { node: VNode; end: number } | null = null;
    if (c === '\\' && /[\\`*_{}[\]()#+\-.!~|>]/.test(text[at + 1] ?? '')) {
      plain += text[at + 1];
      at += 2;
      continue;
    }
    if (misses < 200) {
      if (c === '`') found = codeSpan(text, at);
      else if (c === '[') found = link(text, at, depth);
      else if (c === '*' || c === '_' || c === '~') found = marked(text, at, depth);
      else if (c === 'h' && text.startsWith('http', at)) found = bareLink(text, at);
      if (!found && '`[*_~'.includes(c)) ++misses;
    }
    if (found) {
      if (plain) out.push(plain);
      plain = '';
      out.push(found.node);
      at = found.end;
    } else {
      plain += c;
      ++at;
    }
  }
  if (plain) out.push(plain);
  return out;
}

function lines(text: string[], depth: number): Inline {
  const out: Inline = [];
  text.forEach((line, i) => {
    if (i > 0) out.push(/ {2,}$|\\$/.test(text[i - 1] as string) ? <br /> : '\n');
    out.push(...inline(line.replace(/ {2,}$|\\$/, ''), depth));
  });
  return out;
}

function Code({ text, language }: { text: string; language: string }) {
  const { copied, copy } = useCopy(text);
  return (
    <figure class="code">
      <figcaption>
        <span>{language || 'text'}</span>
        <button type="button" class="quiet small" onClick={copy}>
          <CopyIcon /> {copied ? 'Copied' : 'Copy'}
        </button>
      </figcaption>
      <pre tabIndex={0}>
        <code>{text}</code>
      </pre>
    </figure>
  );
}

const kFence = /^ {0,3}(`{3,}|~{3,})\s*([\w+#.-]*)[^`]*$/;
const kHeading = /^ {0,3}(#{1,6})\s+(.*?)\s*#*$/;
const kRule = /^ {0,3}([-*_])(?:\s*\1){2,}\s*$/;
const kItem = /^(\s*)([-*+]|\d{1,9}[.)])(\s+|$)(.*)$/;
const kTableRule = /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)+\|?\s*$/;

function cells(line: string): string[] {
  return line
    .trim()
    .replace(/^\||\|$/g, '')
    .split(/(?<!\\)\|/)
    .map((cell) => cell.trim().replaceAll('\\|', '|'));
}

function startsSomething(line: string): boolean {
  return kFence.test(line) || kHeading.test(line) || kRule.test(line) || kItem.test(line) || /^ {0,3}>/.test(line);
}

// Reads one construct at `at` and says where the next begins.
function fence(all: string[], at: number): { node: VNode; next: number } | null {
  const open = (all[at] as string).match(kFence);
  if (!open) return null;
  const mark = open[1] as string;
  let end = at + 1;
  while (end < all.length && !(all[end] as string).trim().startsWith(mark)) ++end;
  const text = all.slice(at + 1, end).join('\n');
  return { node: <Code key={at} text={text} language={open[2] ?? ''} />, next: end + 1 };
}

function table(all: string[], at: number, depth: number): { node: VNode; next: number } | null {
  if (!(all[at] as string).includes('|') || !kTableRule.test(all[at + 1] ?? '')) return null;
  const head = cells(all[at] as string);
  const align = cells(all[at + 1] as string).map((c) => (c.endsWith(':') ? (c.startsWith(':') ? 'center' : 'end') : ''));
  let next = at + 2;
  const rows: string[][] = [];
  for (; next < all.length && (all[next] as string).includes('|'); ++next) rows.push(cells(all[next] as string));
  const node = (
    <div class="table" key={at} tabIndex={0} role="region" aria-label="Table">
      <table>
        <thead>
          <tr>{head.map((c, i) => <th class={align[i]} scope="col">{inline(c, depth)}</th>)}</tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr>{head.map((_, i) => <td class={align[i]}>{inline(row[i] ?? '', depth)}</td>)}</tr>
          ))}
        </tbody>
      </table>
    </div>
  );
  return { node, next };
}

function quote(all: string[], at: number, depth: number): { node: VNode; next: number } | null {
  if (!/^ {0,3}>/.test(all[at] as string)) return null;
  let next = at;
  const inside: string[] = [];
  for (; next < all.length && /^ {0,3}>/.test(all[next] as string); ++next) {
    inside.push((all[next] as string).replace(/^ {0,3}> ?/, ''));
  }
  return { node: <blockquote key={at}>{parts(inside, depth + 1)}</blockquote>, next };
}

function list(all: string[], at: number, depth: number): { node: VNode; next: number } | null {
  const first = (all[at] as string).match(kItem);
  if (!first) return null;
  const indent = (first[1] as string).length;
  const ordered = /\d/.test(first[2] as string);
  const items: string[][] = [];
  let next = at;
  while (next < all.length) {
    const line = all[next] as string;
    const item = line.match(kItem);
    const depthOf = line.length - line.trimStart().length;
    if (item && depthOf <= indent + 1 && depthOf >= indent && /\d/.test(item[2] as string) === ordered) {
      items.push([item[4] as string]);
    } else if (line.trim() === '') {
      const after = all[next + 1] ?? '';
      if (after.trim() === '' || (!kItem.test(after) && after.length - after.trimStart().length <= indent)) break;
      items[items.length - 1]?.push('');
    } else if (depthOf > indent || !startsSomething(line)) {
      items[items.length - 1]?.push(line.slice(Math.min(depthOf, indent + (item ? 2 : (first[2] as string).length + 1))));
    } else {
      break;
    }
    ++next;
  }
  const body = items.map((item) => <li>{parts(item, depth + 1, true)}</li>);
  const start = ordered ? Number.parseInt(first[2] as string, 10) : 1;
  return { node: ordered ? <ol key={at} start={start}>{body}</ol> : <ul key={at}>{body}</ul>, next };
}

function parts(all: string[], depth: number, tight = false): ComponentChildren[] {
  if (depth > kDeepest) return [all.join('\n')];
  const out: ComponentChildren[] = [];
  for (let at = 0; at < all.length; ) {
    const line = all[at] as string;
    if (line.trim() === '') {
      ++at;
      continue;
    }
    const heading = line.match(kHeading);
    const found = fence(all, at) ?? (kRule.test(line) ? { node: <hr key={at} />, next: at + 1 } : null);
    const other = found ?? table(all, at, depth) ?? quote(all, at, depth) ?? (heading ? null : list(all, at, depth));
    if (other) {
      out.push(other.node);
      at = other.next;
    } else if (heading) {
      // The page's own headings come first, so an answer's begin at the third level.
      const Level = `h${Math.min(6, (heading[1] as string).length + 2)}` as 'h3';
      out.push(<Level key={at}>{inline(heading[2] as string, depth)}</Level>);
      ++at;
    } else {
      let end = at + 1;
      while (end < all.length && (all[end] as string).trim() !== '' && !startsSomething(all[end] as string)) ++end;
      const text = lines(all.slice(at, end), depth);
      out.push(tight && out.length === 0 ? <span key={at}>{text}</span> : <p key={at}>{text}</p>);
      at = end;
    }
  }
  return out;
}

export const Markdown = memo(({ text }: { text: string }) => (
  <div class="markdown">{parts(text.replaceAll('\r\n', '\n').split('\n'), 0)}</div>
));
