// The machine's map follows the timeline's span: load of every CPU, moves between LLCs, where fetched lines came from.

import { magnitudeClass } from './colour';
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
    const whole = this.state.scenes.every((scene) => scene.exact) ? '' : ' Single slices are not in the page: lines show the whole run.';
    this.note.textContent = `Load, residency, moves and fetched lines from ${duration(from)} to ${duration(to)}: the timeline's span.${whole}`;
    this.state.scenes.forEach((scene, index) => {
      const svg = this.figures[index];
      if (!svg || !this.state.shown.has(index)) return;
      this.sources(svg, scene);
      this.load(svg, scene);
      this.residents(svg, scene);
      if (scene.exact) this.traffic(svg, scene);
    });
  }

  private load(svg: SVGSVGElement, scene: Scene): void {
    const { from, to } = this.state;
    svg.querySelectorAll<SVGRectElement>('rect[data-cpu]').forEach((rect) => {
      const cpu = Number(rect.dataset.cpu);
      const share = Math.min(1, scene.busyIn(cpu, from, to) / (to - from));
      rect.setAttribute('class', `cpu ${magnitudeClass(share)}`);
      const title = rect.querySelector('title');
      const place = title?.textContent?.split(':')[0] ?? `cpu${cpu}`;
      if (title) title.textContent = `${place}: busy ${percent(share)}`;
    });
  }

  /** The bars of an LLC: whose run time its CPUs spent in the span, as long as the LLC that was busiest. */
  private residents(svg: SVGSVGElement, scene: Scene): void {
    const { from, to, machine } = this.state;
    const rowOf = Uint32Array.from(scene.header.task_map_rows);
    const rows = rowOf.reduce((a, b) => Math.max(a, b), 0) + 1;
    const llcs = Math.max(0, ...machine.llc) + 1;
    const run = new Float64Array(llcs * rows);
    for (let cpu = 0; cpu < scene.cpus; cpu++) {
      const base = machine.llc[cpu] * rows;
      scene.runIn(cpu, from, to, (task, ns) => (run[base + rowOf[task]] += ns));
    }
    const bars = [...svg.querySelectorAll<SVGRectElement>('rect.resident')];
    const shares = bars.map((bar) => run[Number(bar.dataset.llc) * rows + Number(bar.dataset.row)] / ((to - from) * Number(bar.dataset.cpus)));
    const busy = new Float64Array(llcs);
    bars.forEach((bar, i) => (busy[Number(bar.dataset.llc)] += shares[i]));
    const most = busy.reduce((a, b) => Math.max(a, b), 1e-12);
    const ends = new Float64Array(llcs).fill(NaN);
    bars.forEach((bar, i) => {
      const llc = Number(bar.dataset.llc);
      const share = shares[i];
      const x = Number.isNaN(ends[llc]) ? Number(bar.dataset.x) : ends[llc];
      const width = (share / most) * Number(bar.dataset.width);
      bar.setAttribute('x', x.toFixed(1));
      bar.setAttribute('width', width.toFixed(1));
      ends[llc] = x + width;
      const title = bar.querySelector('title');
      // The name may hold anything; the share stands behind it.
      const name = title?.textContent?.replace(/ \S+ % of the CPUs' time$/, '') ?? '';
      if (title) title.textContent = `${name} ${percent(share)} of the CPUs' time`;
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
    const pairs = lines.map((line) => (line.dataset.llcs ?? '').split(' ').map(Number));
    const most = Math.max(1, ...pairs.map(([a, b]) => moves[a * this.llcs + b] + moves[b * this.llcs + a]));
    for (const line of lines) {
      const [a, b] = (line.dataset.llcs ?? '').split(' ').map(Number);
      const count = moves[a * this.llcs + b] + moves[b * this.llcs + a];
      line.setAttribute('class', count > 0 ? `traffic w${Math.round(1 + (6 * count) / most)}` : 'traffic none');
      const title = line.querySelector('title');
      if (title) title.textContent = `llc${a} and llc${b}: ${count} moves`;
    }
  }

  private get llcs(): number {
    return Math.max(0, ...this.state.machine.llc) + 1;
  }

  /** Consecutive slices of one task in different LLCs whose second one begins in the span: from row to column. */
  private moves(scene: Scene): Uint32Array {
    const { from, to, machine } = this.state;
    const llcs = this.llcs;
    const found = new Uint32Array(llcs * llcs);
    const { first, start, origin } = scene;
    for (let cpu = 0; cpu < scene.cpus; cpu++) {
      const into = machine.llc[cpu];
      for (let i = scene.after(cpu, from); i < first[cpu + 1] && start[i] < to; i++) {
        if (origin[i] > 0 && start[i] >= from) found[(origin[i] - 1) * llcs + into]++;
      }
    }
    return found;
  }
}
