// Files attached to a question, as text.
import { CloseIcon, FileIcon } from './icons';
import type { FileText } from './turns';

export const kMostFiles = 8;
const kMostBytes = 256 * 1024; // of one file
const kMostTogether = 1024 * 1024; // of a question

export function sizeText(bytes: number): string {
  if (bytes < 1024) return `${bytes} B`;
  const kib = bytes / 1024;
  return kib < 1024 ? `${kib.toFixed(kib < 10 ? 1 : 0)} KiB` : `${(kib / 1024).toFixed(1)} MiB`;
}

async function readText(file: File): Promise<FileText | string> {
  if (file.size > kMostBytes) {
    return `${file.name} has ${sizeText(file.size)}; at most ${sizeText(kMostBytes)} of a file can be attached.`;
  }
  try {
    const text = new TextDecoder('utf-8', { fatal: true }).decode(await file.arrayBuffer());
    if (text.includes('\0')) return `${file.name} is no text.`;
    return { name: file.name.slice(0, 200), text };
  } catch {
    return `${file.name} is no text in UTF-8.`;
  }
}

// Those before and as many of the new ones as may be, and a sentence for each that may not.
export async function addFiles(before: FileText[], chosen: Iterable<File>): Promise<{ files: FileText[]; problems: string[] }> {
  const files = [...before];
  const problems: string[] = [];
  for (const file of chosen) {
    const read = files.length < kMostFiles ? await readText(file) : `No more than ${kMostFiles} files: ${file.name} is left out.`;
    const together = files.reduce((sum, one) => sum + one.text.length, 0);
    if (typeof read === 'string') problems.push(read);
    else if (together + read.text.length > kMostTogether) {
      problems.push(`${file.name} is left out: files of a question have at most ${sizeText(kMostTogether)} together.`);
    } else files.push(read);
  }
  return { files, problems };
}

export function FileChip({ file, onRemove }: { file: FileText; onRemove?: () => void }) {
  const about = <><FileIcon /> <span class="name">{file.name}</span> <small>{sizeText(file.text.length)}</small></>;
  if (onRemove) {
    return (
      <li class="chip">
        {about}
        <button type="button" class="quiet" onClick={onRemove} aria-label={`Take ${file.name} off`}><CloseIcon /></button>
      </li>
    );
  }
  return (
    <li>
      <details class="filebox">
        <summary class="chip">{about}</summary>
        <pre class="loose" tabIndex={0}>{file.text}</pre>
      </details>
    </li>
  );
}
