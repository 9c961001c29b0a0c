// The machine's map follows the timeline's span: load of every CPU, migrations between LLCs, where cache lines came from.

import { element } from './dom';
import { count, duration, many, percent } from './format';
import { lazily } from './lazily';
import type { Scene } from './scene';
import type { RunState } from './state';

/** Counters of cache lines that miss the L2, by where they come from. */
const SOURCES = ['c2c_same_llc', 'c2c_other_llc', 'c2c_other_socket', 'dram_local', 'dram_remote'];

/** A line between two places, and how many tasks moved along it. */
interface Edge {
  line: SVGPolylineElement;
  migrations: number;
}

/** Migrations up to which an edge gets no thicker than with as many units, as `FEW` in crates/report/src/figures/map.rs. */
const FEW = 6;

/** Makes edges as thick as they have migrations, on one scale for all schedulers; returns the most migrations of any. */
function thicken(edges: Edge[]): number {
  const most = Math.max(0, ...edges.map((edge) => edge.migrations));
  for (const { line, migrations } of edges) {
    line.setAttribute('class', migrations > 0 ? `traffic w${Math.round(1 + (6 * migrations) / Math.max(FEW, most))}` : 'traffic none');
    const title = line.querySelector('title');
    if (title) title.textContent = `${line.dataset.names}: ${many(migrations, 'migration')}`;
  }
  return most;
}

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
    // The note of the whole trial's scales gives way to that of the span's.
    if (state.scenes.every((scene) => scene.exact)) {
      for (const words of section?.querySelectorAll('.set > .note') ?? []) {
        words.textContent = (words.textContent ?? '').replace(/ All schedulers have the same scales; .*$/, '');
      }
    }
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
    const shown = this.state.scenes.filter((_, index) => this.figures[index] && this.state.shown.has(index));
    const longest = Math.max(0, ...shown.map((scene) => this.mostFetched(scene)));
    const bars = this.figures.some((svg) => svg?.querySelector('rect.source'));
    const whole = this.state.scenes.every((scene) => scene.exact) ? '' : ' Single slices are not in the page: edges show the whole run.';
    const edges: Edge[] = [];
    this.state.scenes.forEach((scene, index) => {
      const svg = this.figures[index];
      if (!svg || !this.state.shown.has(index)) return;
      this.sources(svg, scene, longest);
      this.load(svg, scene);
      this.residents(svg, scene);
      if (scene.exact) edges.push(...this.traffic(svg, scene));
    });
    const most = thicken(edges);
    // Edges of the whole run keep their scale.
    const scalesOf = (edges: boolean): string =>
      [
        ...(edges ? [`thickest edge: ${many(most, 'migration')}`] : []),
        ...(bars && longest > 0 ? [`longest bar: ${count(longest)} cache lines/s`] : []),
      ].join(', ');
    const scales = scalesOf(most > 0);
    if (whole === '') {
      for (const svg of this.figures) {
        const words = svg?.querySelector('text.scale');
        if (words) words.textContent = scalesOf(edges.some(({ line, migrations }) => migrations > 0 && svg?.contains(line)));
      }
    }
    // Maps of exact scenes have the scales in themselves.
    const said = scales ? ` All maps have one scale${whole ? `; ${scales}` : ''}.` : '';
    this.note.textContent = `From ${duration(from)} to ${duration(to)}, the timeline's span.${said}${whole}`;
  }

  /** How busy each CPU was, or on large machines the CPUs of each LLC: the filled part of its place. */
  private load(svg: SVGSVGElement, scene: Scene): void {
    const { from, to } = this.state;
    svg.querySelectorAll<SVGRectElement>('rect.cpu').forEach((rect) => {
      const { x, y, width, height, cpus } = rect.dataset;
      const numbers = (cpus ?? '').split(' ').map(Number);
      const busy = numbers.reduce((sum, cpu) => sum + scene.busyIn(cpu, from, to), 0);
      const share = Math.min(1, busy / numbers.length / (to - from));
      const upright = numbers.length === 1;
      rect.setAttribute('x', x ?? '0');
      rect.setAttribute('y', (Number(y) + (upright ? Number(height) * (1 - share) : 0)).toFixed(1));
      rect.setAttribute('width', (Number(width) * (upright ? 1 : share)).toFixed(1));
      rect.setAttribute('height', (Number(height) * (upright ? share : 1)).toFixed(1));
      const title = rect.querySelector('title');
      if (title) title.textContent = `${title.textContent?.split(':')[0] ?? ''}: busy ${percent(share)}`;
    });
  }

  /** The bars of rows of tasks: in which LLCs they ran in the span, in parts of their run time. */
  private residents(svg: SVGSVGElement, scene: Scene): void {
    const { from, to, machine } = this.state;
    const bars = [...svg.querySelectorAll<SVGRectElement>('rect.resident')];
    if (bars.length === 0) return;
    const rowOf = Uint32Array.from(scene.header.task_map_rows);
    const llcs = this.llcs;
    const rows = rowOf.reduce((a, b) => Math.max(a, b), 0) + 1;
    const run = new Float64Array(llcs * rows);
    const whole = new Float64Array(rows);
    for (let cpu = 0; cpu < scene.cpus; cpu++) {
      scene.runIn(cpu, from, to, (task, ns) => {
        run[rowOf[task] * llcs + machine.llc[cpu]] += ns;
        whole[rowOf[task]] += ns;
      });
    }
    const ends = new Float64Array(rows).fill(NaN);
    for (const bar of bars) {
      const [row, llc] = [Number(bar.dataset.row), Number(bar.dataset.llc)];
      const share = run[row * llcs + llc] / Math.max(1, whole[row]);
      const x = Number.isNaN(ends[row]) ? Number(bar.dataset.x) : ends[row];
      const width = share * Number(bar.dataset.width);
      bar.setAttribute('x', x.toFixed(1));
      bar.setAttribute('width', width.toFixed(1));
      ends[row] = x + width;
      const title = bar.querySelector('title');
      // The name may hold anything; the share stands behind it.
      const name = title?.textContent?.replace(/ \S+ % of its run time$/, '') ?? '';
      if (title) title.textContent = `${name} ${percent(share)} of its run time`;
    }
  }

  /** Cache lines per second that an LLC fetched in the span, from where a counter says. */
  private fetched(scene: Scene, counter: string, llc: number): number {
    const { from, to } = this.state;
    const index = scene.header.counters.indexOf(counter);
    if (index < 0) return 0;
    // Whole stretches of time are counted: the rate is over those.
    const stretch = scene.header.end_ns / scene.header.counter_bins;
    const stretches = Math.min(scene.header.counter_bins, Math.ceil(to / stretch)) - Math.floor(from / stretch);
    return stretches > 0 ? scene.countedIn(index, llc, from, to) / ((stretches * stretch) / 1e9) : 0;
  }

  /** The cache lines per second of the LLC that fetched most in the span. */
  private mostFetched(scene: Scene): number {
    const rate = (llc: number): number => SOURCES.reduce((sum, counter) => sum + this.fetched(scene, counter, llc), 0);
    return Math.max(0, ...Array.from({ length: this.llcs }, (_, llc) => rate(llc)));
  }

  /** The bars of an LLC: as long as its rate, relative to the LLC that fetched most in the span under any scheduler. */
  private sources(svg: SVGSVGElement, scene: Scene, most: number): void {
    const bars = [...svg.querySelectorAll<SVGRectElement>('rect.source')];
    if (bars.length === 0) return;
    const found = bars.map((bar) => this.fetched(scene, bar.dataset.counter ?? '', Number(bar.dataset.llc)));
    const ends = new Map<string, number>();
    bars.forEach((bar, i) => {
      const llc = bar.dataset.llc ?? '';
      const x = ends.get(llc) ?? Number(bar.dataset.x);
      const width = (found[i] / Math.max(1, most)) * Number(bar.dataset.width);
      bar.setAttribute('x', x.toFixed(1));
      bar.setAttribute('width', width.toFixed(1));
      ends.set(llc, x + width);
      const title = bar.querySelector('title');
      const words = title?.textContent?.split(' cache lines/s ')[1] ?? '';
      if (title) title.textContent = `llc${llc}: ${count(found[i])} cache lines/s ${words}`;
    });
  }

  /** Edges between LLCs, or between the LLCs of two nodes. */
  private traffic(svg: SVGSVGElement, scene: Scene): Edge[] {
    const lines = [...svg.querySelectorAll<SVGPolylineElement>('polyline[data-llcs]')];
    const words = svg.querySelector('text.spread');
    if (lines.length === 0 && !words) return [];
    const moves = this.moves(scene);
    const edges = lines.map((line) => {
      const [one, other] = (line.dataset.llcs ?? '').split(' ').map((list) => list.split(',').map(Number));
      let sum = 0;
      for (const a of one) for (const b of other) sum += moves[a * this.llcs + b] + moves[b * this.llcs + a];
      return { line, migrations: sum };
    });
    if (words) words.textContent = this.notDrawn(moves, edges);
    return edges;
  }

  /** Of the span's migrations between LLCs, what edges do not show. */
  private notDrawn(moves: Uint32Array, edges: Edge[]): string {
    const { llcs } = this;
    const total = moves.reduce((a, b) => a + b, 0);
    const drawn = edges.reduce((sum, edge) => sum + edge.migrations, 0);
    if (drawn === total) return '';
    const all = many(total, 'migration');
    if (edges.length > 0) return `edges: ${percent(drawn / total)} of ${all}`;
    let used = 0;
    for (let a = 0; a < llcs; a++) for (let b = a + 1; b < llcs; b++) if (moves[a * llcs + b] + moves[b * llcs + a] > 0) used++;
    const pairs = (llcs * (llcs - 1)) / 2;
    return `${all}, spread over ${used === pairs ? `all ${pairs}` : `${used} of ${pairs}`} pairs of LLCs`;
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
