// The machine's map follows the timeline's span: load of every CPU, moves between LLCs.

import { css, magnitude } from './colour';
import { element } from './dom';
import { duration, percent } from './format';
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
    state.listen(() => this.draw());
    this.draw();
  }

  private draw(): void {
    const { from, to } = this.state;
    this.note.textContent = `Load and moves from ${duration(from)} to ${duration(to)}: the timeline's span.`;
    this.state.scenes.forEach((scene, index) => {
      const svg = this.figures[index];
      const figure = svg?.closest('figure');
      if (!svg || !figure) return;
      figure.hidden = !this.state.shown.has(index);
      if (figure.hidden || !scene.exact) return;
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
