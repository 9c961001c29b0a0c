// The machine's map follows the timeline's span: load of every CPU, moves between LLCs, where fetched lines came from.

import { css, magnitude } from './colour';
import { element } from './dom';
import { count, duration, percent } from './format';
import { lazily } from './lazily';
import type { Scene } from './scene';
import type { RunState } from './state';

export class MachineMap {
  private readonly note = element('p', 'note');
  private readonly figures: (SVGSVGElement | null)[];

  constructor(
    box: HTMLElement,
    private readonly state: RunState,
  ) {
    const section = box.closest('section');
    this.figures = state.scenes.map((_, index) => section?.querySelector<SVGSVGElement>(`figure[data-figure^="machine-${index}-"] svg`) ?? null);
    this.note.setAttribute('role', 'status');
    box.append(this.note);
    const wanted = lazily('map', section ?? box, () => this.draw());
    state.listen(() => {
      this.show();
      wanted();
    });
    this.show();
    wanted();
  }

  /** Hides and shows figures at once; drawing may wait. */
  private show(): void {
    this.figures.forEach((svg, index) => {
      const figure = svg?.closest('figure');
      if (figure) figure.hidden = !this.state.shown.has(index);
    });
  }

  private draw(): void {
    const { from, to } = this.state;
    this.note.textContent = `Load, moves and fetched lines from ${duration(from)} to ${duration(to)}: the timeline's span.`;
    this.state.scenes.forEach((scene, index) => {
      const svg = this.figures[index];
      if (!svg || !this.state.shown.has(index)) return;
      this.sources(svg, scene);
      if (!scene.exact) return;
      this.load(svg, scene);
      this.traffic(svg, scene);
    });
  }

  private load(svg: SVGSVGElement, scene: Scene): void {
    const { from, to } = this.state;
    svg.querySelectorAll<SVGRectElement>('rect[data-cpu]').forEach((rect) => {
      const cpu = Number(rect.dataset.cpu);
      let busy = 0;
      for (let i = scene.after(cpu, from); i < scene.first[cpu + 1] && scene.start[i] < to; i++) {
        busy += Math.min(to, scene.end[i]) - Math.max(from, scene.start[i]);
      }
      const share = busy / (to - from);
      rect.setAttribute('fill', css(magnitude(share)));
      const title = rect.querySelector('title');
      const place = title?.textContent?.split(':')[0] ?? `cpu${cpu}`;
      if (title) title.textContent = `${place}: busy ${percent(share)}`;
    });
  }

  /** The bars of an LLC: as long as its rate, relative to the LLC that fetched most in the span. */
  private sources(svg: SVGSVGElement, scene: Scene): void {
    const bars = [...svg.querySelectorAll<SVGRectElement>('rect.source')];
    if (bars.length === 0) return;
    const { from, to } = this.state;
    const found = bars.map((bar) => {
      const counter = scene.header.counters.indexOf(bar.dataset.counter ?? '');
      return counter < 0 ? 0 : scene.countedIn(counter, Number(bar.dataset.llc), from, to);
    });
    const sums = new Map<string, number>();
    bars.forEach((bar, i) => sums.set(bar.dataset.llc ?? '', (sums.get(bar.dataset.llc ?? '') ?? 0) + found[i]));
    const most = Math.max(1, ...sums.values());
    // Whole stretches of time are counted: the rate is over those.
    const stretch = scene.header.end_ns / scene.header.counter_bins;
    const seconds = ((Math.ceil(to / stretch) - Math.floor(from / stretch)) * stretch) / 1e9;
    const ends = new Map<string, number>();
    bars.forEach((bar, i) => {
      const llc = bar.dataset.llc ?? '';
      const x = ends.get(llc) ?? Number(bar.dataset.x);
      const width = (found[i] / most) * Number(bar.dataset.width);
      bar.setAttribute('x', x.toFixed(1));
      bar.setAttribute('width', width.toFixed(1));
      ends.set(llc, x + width);
      const title = bar.querySelector('title');
      const words = title?.textContent?.split(' lines/s ')[1] ?? '';
      if (title) title.textContent = `llc${llc}: ${count(found[i] / seconds)} lines/s ${words}`;
    });
  }

  private traffic(svg: SVGSVGElement, scene: Scene): void {
    const lines = [...svg.querySelectorAll<SVGPolylineElement>('polyline[data-llcs]')];
    if (lines.length === 0) return;
    const moves = this.moves(scene);
    const most = Math.max(1, ...moves.values());
    for (const line of lines) {
      const [a, b] = (line.dataset.llcs ?? '').split(' ').map(Number);
      const count = moves.get(a * 65536 + b) ?? 0;
      line.setAttribute('class', count > 0 ? `traffic w${Math.round(1 + (6 * count) / most)}` : 'traffic none');
      const title = line.querySelector('title');
      if (title) title.textContent = `llc${a} and llc${b}: ${count} moves`;
    }
  }

  /** Consecutive slices of one task in different LLCs whose second one begins in the span; both directions together. */
  private moves(scene: Scene): Map<number, number> {
    const { llc } = this.state.machine;
    const { first, slices } = scene.slicesByTask();
    const found = new Map<number, number>();
    for (let task = 0; task < scene.tasks; task++) {
      for (let at = first[task] + 1; at < first[task + 1]; at++) {
        const start = scene.start[slices[at]];
        if (start < this.state.from || start >= this.state.to) continue;
        const [a, b] = [llc[scene.cpu[slices[at - 1]]], llc[scene.cpu[slices[at]]]];
        if (a === b) continue;
        const pair = Math.min(a, b) * 65536 + Math.max(a, b);
        found.set(pair, (found.get(pair) ?? 0) + 1);
      }
    }
    return found;
  }
}
