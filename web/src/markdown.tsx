// What a model writes, as elements: markdown-it reads it (CommonMark, tables, strikethrough, bare links), and its tokens
// become elements one by one from the short list below. No HTML text is made anywhere on the way, so there is nothing a
// tag could come out of; a strict policy of the server's (trusted types) forbids the browser to parse any.
import MarkdownIt, { type Env, type Token } from 'markdown-it';
import { type ComponentChildren, Fragment, h } from 'preact';
import { useRef } from 'preact/hooks';
import { CodeFigure } from './code';
import { Formula } from './formula';
import { math } from './math_rules';
import { memo } from './memo';

const kDeepest = 32; // elements inside each other; what is deeper stands in the one above
const kLongest = 300_000; // characters; a longer answer is shown as text
const md = new MarkdownIt('default', { html: false, linkify: true, typographer: false, maxNesting: kDeepest });
md.linkify.set({ fuzzyLink: false, fuzzyEmail: false });
md.use(math);

const kSame = new Set(['em', 'strong', 's', 'ul', 'ol', 'li', 'blockquote', 'thead', 'tbody', 'tr', 'th', 'td', 'p']);

function safeLink(href: string): string | undefined {
  const scheme = href.match(/^([a-z][a-z0-9+.-]*):/i)?.[1]?.toLowerCase();
  return scheme === 'http' || scheme === 'https' || scheme === 'mailto' ? href : undefined;
}

function link(href: string, inside: ComponentChildren, key: number): ComponentChildren {
  const safe = safeLink(href);
  if (!safe) return <span key={key}>{inside}</span>;
  return <a key={key} href={safe} target="_blank" rel="noopener noreferrer nofollow">{inside}</a>;
}

function aligned(token: Token): string {
  const style = String(token.attrGet('style') ?? '');
  return style.includes('right') ? 'end' : style.includes('center') ? 'center' : '';
}

// The mark of a task at the start of a list's item: true, false, or null for none. It is taken out of the text.
function takeTask(tokens: Token[], at: number): boolean | null {
  const line = tokens[at + 1]?.type === 'paragraph_open' ? tokens[at + 2] : undefined;
  const first = line?.children?.[0];
  const mark = first?.type === 'text' ? first.content.match(/^\[([ xX])\](?:\s+|$)/) : null;
  if (!first || !mark) return null;
  first.content = first.content.slice(mark[0].length);
  return mark[1] !== ' ';
}

function element(token: Token, inside: ComponentChildren[], key: number): ComponentChildren {
  switch (token.type) {
    case 'heading_open':
      // The page's own headings come first, so an answer's begin at the third level.
      return h(`h${Math.min(6, Number(token.tag.slice(1)) + 2)}`, { key }, inside);
    case 'link_open':
      return link(String(token.attrGet('href') ?? ''), inside, key);
    case 'table_open':
      return <div class="table" key={key} tabIndex={0}><table>{inside}</table></div>;
    case 'ordered_list_open':
      return <ol key={key} start={Number(token.attrGet('start') ?? 1)}>{inside}</ol>;
    case 'th_open':
    case 'td_open':
      return h(token.tag, { key, class: aligned(token) }, inside);
    case 'paragraph_open':
      return token.hidden ? <span key={key}>{inside}</span> : <p key={key}>{inside}</p>;
    case 'list_item_open': {
      const done = token.meta?.done;
      if (typeof done !== 'boolean') return <li key={key}>{inside}</li>;
      const box = <input type="checkbox" disabled checked={done} aria-label={done ? 'done' : 'not done'} />;
      return <li key={key} class="task">{box}<div>{inside}</div></li>;
    }
    default:
      return kSame.has(token.tag) ? h(token.tag, { key }, inside) : <Fragment key={key}>{inside}</Fragment>;
  }
}

function leaf(token: Token, key: number): ComponentChildren {
  switch (token.type) {
    case 'inline':
      return <Fragment key={key}>{build(token.children ?? [])}</Fragment>;
    case 'code_inline':
      return <code key={key}>{token.content}</code>;
    case 'fence':
      return <CodeFigure key={key} text={token.content.replace(/\n$/, '')} language={token.info.trim().split(/\s/)[0] ?? ''} />;
    case 'code_block':
      return <CodeFigure key={key} text={token.content.replace(/\n$/, '')} language="" />;
    case 'math_inline':
      return <Formula key={key} tex={token.content} display={false} />;
    case 'math_display':
    case 'math_block':
      return <Formula key={key} tex={token.content.trim()} display />;
    case 'softbreak':
      return '\n';
    case 'hardbreak':
      return <br key={key} />;
    case 'hr':
      return <hr key={key} />;
    case 'image': // a picture would be asked of somebody else: its link stands in its place
      return link(String(token.attrGet('src') ?? ''), token.content || 'picture', key);
    default:
      return token.content;
  }
}

// Tokens as elements, without recursion: emphasis may be nested as deep as a text is long.
function build(tokens: Token[]): ComponentChildren[] {
  const open: { token: Token; inside: ComponentChildren[] }[] = [];
  let inside: ComponentChildren[] = [];
  let over = 0; // opened beyond the deepest
  tokens.forEach((token, key) => {
    if (token.nesting === 1) {
      if (token.type === 'list_item_open') token.meta = { done: takeTask(tokens, key) };
      if (open.length >= kDeepest) ++over;
      else {
        open.push({ token, inside });
        inside = [];
      }
    } else if (token.nesting === -1) {
      if (over > 0) --over;
      else {
        const last = open.pop();
        if (last) inside = [...last.inside, element(last.token, inside, key)];
      }
    } else {
      inside.push(leaf(token, key));
    }
  });
  return inside;
}

// Parts of an answer that stand by themselves, each with the text it was made from.
function partsOf(text: string): { source: string; tokens: Token[] }[] {
  const env: Env = {};
  const tokens = md.parse(text, env);
  const all = text.split('\n');
  const references = env.references ? JSON.stringify(env.references) : '';
  const parts: { source: string; tokens: Token[] }[] = [];
  let from = 0;
  for (let at = 0, level = 0; at < tokens.length; ++at) {
    level += tokens[at]?.nesting ?? 0;
    if (level > 0) continue;
    const own = tokens.slice(from, at + 1);
    const lines = own[0]?.map ?? [0, 0];
    parts.push({ source: `${all.slice(lines[0], lines[1]).join('\n')}\0${references}`, tokens: own });
    from = at + 1;
  }
  return parts;
}

// While an answer grows, only its last part changes: the others keep the elements they have.
export const Markdown = memo(({ text }: { text: string }) => {
  const kept = useRef(new Map<string, ComponentChildren>());
  if (text.length > kLongest) return <div class="markdown plain-text">{text}</div>;
  const made = new Map<string, ComponentChildren>();
  const parts = partsOf(text.replaceAll('\r\n', '\n')).map(({ source, tokens }, i) => {
    const name = `${i}\0${source}`;
    const part = kept.current.get(name) ?? <Fragment key={i}>{build(tokens)}</Fragment>;
    made.set(name, part);
    return part;
  });
  kept.current = made;
  return <div class="markdown">{parts}</div>;
});
