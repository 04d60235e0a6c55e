// The KV cache as a map: a cell per page (or per few pages), in the order of the pool. Letters are those of /live.
import { useEffect, useRef, useState } from 'preact/hooks';
import type { Live } from './api';

export const kStates: { letter: string; name: string; color: string; what: string }[] = [
  { letter: 'u', name: 'in use', color: '--used', what: 'held by one sequence' },
  { letter: 's', name: 'shared', color: '--shared', what: 'read by several sequences at once' },
  { letter: 'c', name: 'cached', color: '--cached', what: 'kept for the next prompt that starts the same' },
  { letter: '.', name: 'free', color: '--free', what: '' },
];
const kGap = 1;

interface Shape {
  columns: number;
  side: number;
  rows: number;
}

function shapeOf(cells: number, width: number, tall: number): Shape {
  for (let side = 18; side > 3; --side) {
    const columns = Math.max(1, Math.floor((width + kGap) / side));
    const rows = Math.ceil(cells / columns);
    if (rows * side <= tall) return { columns, side, rows };
  }
  const columns = Math.max(1, Math.floor(width / 3));
  return { columns, side: 3, rows: Math.ceil(cells / columns) };
}

function draw(canvas: HTMLCanvasElement, map: string, shape: Shape) {
  const ratio = window.devicePixelRatio || 1;
  const { columns, side, rows } = shape;
  canvas.style.height = `${rows * side}px`;
  canvas.width = Math.round(canvas.clientWidth * ratio);
  canvas.height = Math.round(rows * side * ratio);
  const pen = canvas.getContext('2d');
  if (!pen) return;
  const style = getComputedStyle(canvas);
  const colors = new Map(kStates.map((state) => [state.letter, style.getPropertyValue(state.color)]));
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  for (let i = 0; i < map.length; ++i) {
    pen.fillStyle = colors.get(map[i] as string) ?? 'transparent';
    pen.fillRect((i % columns) * side, Math.floor(i / columns) * side, side - kGap, side - kGap);
  }
}

export function PageMap({ pages }: { pages: Live['pages'] }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [width, setWidth] = useState(0);
  const [under, setUnder] = useState(-1);
  useEffect(() => {
    const box = canvas.current;
    if (!box) return;
    const observer = new ResizeObserver(() => setWidth(box.clientWidth));
    observer.observe(box);
    return () => observer.disconnect();
  }, []);
  const shape = shapeOf(pages.map.length, width || 600, 260);
  useEffect(() => {
    if (canvas.current && width > 0) draw(canvas.current, pages.map, shape);
  });
  const over = (event: MouseEvent) => {
    const column = Math.floor(event.offsetX / shape.side);
    const cell = column < shape.columns ? Math.floor(event.offsetY / shape.side) * shape.columns + column : -1;
    setUnder(cell < pages.map.length ? cell : -1);
  };
  const state = kStates.find((s) => s.letter === pages.map[under]);
  const first = under * pages.per_cell;
  const which = pages.per_cell > 1 ? `Pages ${first} to ${first + pages.per_cell - 1}` : `Page ${first}`;
  const summary = `${pages.used} pages in use, ${pages.shared} shared, ${pages.cached} cached, ${pages.free} free of ${pages.total}`;
  return (
    <>
      <canvas class="map" ref={canvas} role="img" aria-label={summary} onMouseMove={over} onMouseLeave={() => setUnder(-1)} />
      <p class="mapline">
        {under >= 0 && state
          ? `${which}: ${state.name}${state.what && `, ${state.what}`}`
          : pages.per_cell > 1 ? `Each cell is ${pages.per_cell} pages.` : 'Each cell is one page.'}
      </p>
    </>
  );
}
