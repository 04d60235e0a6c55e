// A chart of the last two minutes on a canvas: one or more lines, broken where there is nothing. Values are given once per sample and
// drawn when they change; colours come from the style sheet, so that they follow the theme.
import { useEffect, useRef } from 'preact/hooks';

export interface Line {
  color: string; // a custom property: "--used"
  values: (number | null)[];
  fill?: boolean;
}

export function niceTop(value: number): number {
  if (value <= 0) return 1;
  const scale = 10 ** Math.floor(Math.log10(value));
  for (const step of [1, 1.5, 2, 3, 5, 7.5, 10]) if (value <= step * scale) return step * scale;
  return 10 * scale;
}

interface Point {
  at: number;
  value: number;
}
const kBridge = 8; // samples without a value that a line goes across; more are a gap

function runsOf(values: (number | null)[]): Point[][] {
  const runs: Point[][] = [];
  let last = -Infinity;
  values.forEach((value, at) => {
    if (value === null) return;
    if (at - last > kBridge) runs.push([]);
    runs[runs.length - 1]?.push({ at, value });
    last = at;
  });
  return runs;
}

function draw(canvas: HTMLCanvasElement, lines: Line[], capacity: number, format: (value: number) => string, most?: number) {
  const ratio = window.devicePixelRatio || 1;
  const width = canvas.clientWidth;
  const height = canvas.clientHeight;
  if (canvas.width !== Math.round(width * ratio)) canvas.width = Math.round(width * ratio);
  if (canvas.height !== Math.round(height * ratio)) canvas.height = Math.round(height * ratio);
  const pen = canvas.getContext('2d');
  if (!pen || width === 0) return;
  const style = getComputedStyle(canvas);
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  const top = most ?? niceTop(Math.max(...lines.flatMap((line) => line.values.map((value) => value ?? 0)), 0));
  const pad = { top: 8, bottom: 4, right: 2 };
  const y = (value: number) => pad.top + (height - pad.top - pad.bottom) * (1 - Math.min(value, top) / top);
  const x = (at: number) => (width - pad.right) * (at / (capacity - 1));
  pen.font = `11px ${style.fontFamily}`;
  pen.lineWidth = 1;
  for (const mark of [1, 0.5, 0]) {
    pen.strokeStyle = style.getPropertyValue('--line');
    pen.beginPath();
    pen.moveTo(0, Math.round(y(top * mark)) + 0.5);
    pen.lineTo(width, Math.round(y(top * mark)) + 0.5);
    pen.stroke();
  }
  for (const line of lines) {
    const color = style.getPropertyValue(line.color);
    const from = capacity - line.values.length;
    pen.strokeStyle = color;
    pen.fillStyle = color;
    pen.lineWidth = 1.6;
    pen.lineJoin = 'round';
    pen.lineCap = 'round';
    for (const run of runsOf(line.values)) {
      const first = run[0] as Point;
      const last = run[run.length - 1] as Point;
      pen.beginPath();
      pen.moveTo(x(from + first.at), y(first.value));
      for (const point of run) pen.lineTo(x(from + point.at), y(point.value));
      pen.stroke();
      if (!line.fill) continue;
      pen.lineTo(x(from + last.at), y(0));
      pen.lineTo(x(from + first.at), y(0));
      pen.closePath();
      pen.globalAlpha = 0.14;
      pen.fill();
      pen.globalAlpha = 1;
    }
  }
  pen.fillStyle = style.getPropertyValue('--faint');
  pen.textBaseline = 'top';
  for (const mark of [1, 0.5]) pen.fillText(format(top * mark), 2, y(top * mark) + 3);
}

interface Props {
  lines: Line[];
  capacity: number;
  label: string;
  format?: (value: number) => string;
  most?: number;
}

export function Chart({ lines, capacity, label, format = (value) => value.toLocaleString('en'), most }: Props) {
  const canvas = useRef<HTMLCanvasElement>(null);
  useEffect(() => {
    const again = () => canvas.current && draw(canvas.current, lines, capacity, format, most);
    again();
    window.addEventListener('resize', again);
    return () => window.removeEventListener('resize', again);
  });
  return <canvas class="chart" ref={canvas} role="img" aria-label={label} />;
}
