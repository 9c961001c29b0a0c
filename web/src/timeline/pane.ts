// One scheduler's pane: a canvas that scrolls with its neighbours, and what pointer and keyboard do in it.

import { element, showTip, SMALL_SCREEN, themeColour } from '../dom';
import { many } from '../format';
import { newRow, type PixelRow } from '../raster';
import type { Scene } from '../scene';
import type { RunState } from '../state';
import { drawAxis, drawChoice, drawDecisions, drawLabels, drawMoves, drawWakes, fitLabels } from './decorate';
import { look, words } from './look';
import { Picture, paintRows } from './paint';
import { AXIS, View, type Hit, type Host, type Settings } from './view';

const MOST_HEIGHT = 400;

export class Pane extends View {
  readonly box = element('div', 'pane');
  private readonly canvas = element('canvas');
  private readonly scroller = element('div', 'scroller');
  private readonly spacer = element('div');
  private readonly heading = element('small');
  private readonly picture = document.createElement('canvas');
  private line: PixelRow = newRow(1);
  private drag: { x: number; from: number; to: number; select: boolean; moved: boolean } | undefined;

  constructor(host: Host, state: RunState, scene: Scene, index: number) {
    super(host, state, scene);
    const title = element('h3', '', scene.header.scheduler);
    const { slices_measured, migrations_ran, decisions_measured } = scene.header;
    const counts = [many(slices_measured, 'slice'), many(migrations_ran, 'migration')];
    if (decisions_measured > 0) counts.push(many(decisions_measured, 'decision'));
    this.heading.textContent = counts.join(', ');
    title.append(this.heading);
    this.canvas.tabIndex = 0;
    this.canvas.dataset.scheduler = String(index);
    this.canvas.setAttribute('role', 'application');
    this.canvas.setAttribute(
      'aria-label',
      `Timeline under ${scene.header.scheduler}. A, D and arrow keys pan and choose a row, W, S, plus and minus zoom, Enter shows what runs there.`,
    );
    this.scroller.append(this.canvas, this.spacer);
    this.box.append(title, this.scroller);
    this.installPointer();
    this.canvas.addEventListener('keydown', (event) => this.key(event));
    this.scroller.addEventListener('scroll', () => {
      this.host.scrollTo(this.scroller.scrollTop);
      this.state.changed();
    });
  }

  scrollTo(top: number): void {
    if (this.scroller.scrollTop !== top) this.scroller.scrollTop = top;
  }

  draw(settings: Settings): void {
    this.settings = settings;
    if (settings.rowsBy === 'task') this.rows = this.state.rows(this.scene);
    if (settings.rowsBy === 'llc') this.llcs = this.state.llcs();
    const width = Math.max(120, this.box.clientWidth - 2);
    const least = settings.rowsBy === 'llc' ? 5 : 2;
    // On a small screen panes are below each other.
    const room = innerWidth <= SMALL_SCREEN ? 200 : 320;
    this.rowHeight = Math.max(least, Math.min(15, Math.floor(room / Math.max(1, this.rowCount))));
    const whole = this.rowHeight * this.rowCount;
    const height = Math.min(whole, MOST_HEIGHT);
    this.scroller.style.height = `${height + AXIS + 4}px`;
    this.spacer.style.height = `${whole - height}px`;
    const ratio = devicePixelRatio || 1;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round((height + AXIS) * ratio);
    this.canvas.style.height = `${height + AXIS}px`;
    const context = this.canvas.getContext('2d');
    if (!context) return;
    context.scale(ratio, ratio);
    context.fillStyle = themeColour('--ground');
    context.fillRect(0, 0, width, height + AXIS);
    fitLabels(this, context, width);
    const plot = width - this.gutter;
    if (plot < 20) return;
    const first = Math.floor(this.scroller.scrollTop / this.rowHeight);
    const rows = Math.min(this.rowCount - first, Math.ceil(height / this.rowHeight));
    this.paint(context, plot, height, first, rows, ratio);
    drawAxis(this, context, plot, height);
    drawLabels(this, context, first, rows);
    if (settings.moves) drawMoves(this, context, plot, first, height);
    drawWakes(this, context, plot, first, height, settings.wakes);
    if (settings.decisions) drawDecisions(this, context, plot, first, height);
    drawChoice(this, context, plot, first, height);
  }


  /** Rows as pixels: a line of the picture for each pixel of a row's height. */
  private paint(context: CanvasRenderingContext2D, plot: number, height: number, first: number, rows: number, ratio: number): void {
    const pixels = Math.round(plot * ratio);
    if (rows <= 0) return;
    if (this.line.who.length !== pixels) this.line = newRow(pixels);
    const lines = this.rowHeight;
    const apart = lines >= 6;
    this.picture.width = pixels;
    this.picture.height = rows * lines;
    const picture = this.picture.getContext('2d');
    if (!picture) return;
    const image = picture.createImageData(pixels, rows * lines);
    const out = new Picture(new Uint32Array(image.data.buffer), pixels, lines, apart ? lines - 1 : lines);
    paintRows(this, out, first, rows, this.line);
    picture.putImageData(image, 0, 0);
    context.imageSmoothingEnabled = false;
    context.drawImage(this.picture, 0, 0, pixels, rows * lines, this.gutter, 0, plot, rows * lines);
    context.fillStyle = themeColour('--ground');
    if (apart) {
      for (let row = 1; row < rows; row++) context.fillRect(this.gutter, row * this.rowHeight - 1, plot, 1);
    }
    // A line where the LLC changes, or the node of LLCs.
    if (this.settings.rowsBy !== 'task') {
      const { llc, node } = this.state.machine;
      const placeOf = (row: number): number => (this.settings.rowsBy === 'cpu' ? llc[this.state.cpus[row]] : node[this.llcs[row][0]]);
      context.fillStyle = themeColour('--muted');
      for (let row = 1; row < rows; row++) {
        if (placeOf(first + row) !== placeOf(first + row - 1)) context.fillRect(this.gutter, row * this.rowHeight - 1, plot, 1);
      }
    }
    context.strokeStyle = themeColour('--line');
    context.strokeRect(this.gutter - 0.5, 0.5, plot, height);
  }

  private timeAt(x: number): number {
    const plot = this.canvas.clientWidth - this.gutter;
    return this.state.from + ((x - this.gutter) / plot) * (this.state.to - this.state.from);
  }

  private hit(x: number, y: number): Hit | undefined {
    const row = Math.floor((y + this.scroller.scrollTop - (this.scroller.scrollTop % this.rowHeight)) / this.rowHeight);
    if (x < this.gutter || row < 0 || row >= this.rowCount || y > this.canvas.clientHeight - AXIS) return undefined;
    return this.look(row, this.timeAt(x));
  }

  private look(row: number, time: number): Hit {
    const pixel = (this.state.to - this.state.from) / Math.max(1, this.canvas.clientWidth - this.gutter);
    return look(this, row, time, 4 * pixel);
  }

  private choose(hit: Hit | undefined): void {
    if (!hit) return;
    this.chosen = hit;
    this.host.tell(`${this.scene.header.scheduler}: ${words(this, hit, true)}`);
    this.state.changed();
  }

  private installPointer(): void {
    const canvas = this.canvas;
    canvas.addEventListener('pointerdown', (event) => {
      canvas.setPointerCapture(event.pointerId);
      const { from, to } = this.state;
      this.drag = { x: event.offsetX, from, to, select: event.shiftKey, moved: false };
    });
    canvas.addEventListener('pointermove', (event) => {
      if (!this.drag) {
        const hit = this.hit(event.offsetX, event.offsetY);
        showTip(hit ? words(this, hit, false) : '', event.clientX, event.clientY);
        return;
      }
      const by = event.offsetX - this.drag.x;
      if (Math.abs(by) > 3) this.drag.moved = true;
      if (!this.drag.moved) return;
      showTip('');
      if (this.drag.select) {
        this.selection = [this.timeAt(this.drag.x), this.timeAt(event.offsetX)];
        this.state.changed();
      } else {
        const time = (by / (canvas.clientWidth - this.gutter)) * (this.drag.to - this.drag.from);
        this.state.show(this.drag.from - time, this.drag.to - time);
      }
    });
    canvas.addEventListener('pointerup', (event) => {
      const drag = this.drag;
      this.drag = undefined;
      if (this.selection) {
        const [a, b] = this.selection;
        this.selection = undefined;
        this.state.show(Math.min(a, b), Math.max(a, b));
      } else if (drag && !drag.moved) {
        this.click(event.offsetX, event.offsetY);
      }
    });
    canvas.addEventListener('pointerleave', () => showTip(''));
    canvas.addEventListener('dblclick', (event) => this.state.zoom(0.4, this.timeAt(event.offsetX)));
    canvas.addEventListener(
      'wheel',
      (event) => {
        if (event.ctrlKey || event.metaKey) {
          event.preventDefault();
          this.state.zoom(1.0015 ** event.deltaY, this.timeAt(event.offsetX));
        } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
          event.preventDefault();
          this.state.pan((event.deltaX || event.deltaY) / 800);
        }
      },
      { passive: false },
    );
  }

  private click(x: number, y: number): void {
    const row = Math.floor((y + this.scroller.scrollTop) / this.rowHeight);
    if (x < this.gutter && this.settings.rowsBy === 'task' && this.rows[row]?.tasks) {
      this.state.toggleGroup(this.scene.header.groups[this.rows[row].group]);
      return;
    }
    this.choose(this.hit(x, y));
  }

  /** Shows a slice in the middle of the span, and tells about it. */
  showSlice(slice: number): void {
    const { start, end, task, cpu } = this.scene;
    const middle = (start[slice] + end[slice]) / 2;
    const length = Math.min(this.state.to - this.state.from, Math.max(20 * (end[slice] - start[slice]), 100));
    this.state.show(middle - length / 2, middle + length / 2);
    const row = this.rowOf(this.rowsOf(), cpu[slice], task[slice]);
    this.scroller.scrollTop = Math.max(0, (row + 0.5) * this.rowHeight - this.canvas.clientHeight / 2);
    this.choose({ row: Math.max(0, row), time: middle, cpu: cpu[slice], slice });
  }

  /** What a key does, pressed in a pane or anywhere on the page while nothing else takes it. */
  key(event: KeyboardEvent): void {
    const row = this.chosen?.row ?? -1;
    const middle = (this.state.from + this.state.to) / 2;
    const actions: Record<string, () => void> = {
      ArrowLeft: () => this.state.pan(-0.1),
      ArrowRight: () => this.state.pan(0.1),
      ArrowUp: () => this.choose(this.look(Math.max(0, row - 1), middle)),
      ArrowDown: () => this.choose(this.look(Math.min(this.rowCount - 1, row + 1), middle)),
      Enter: () => this.choose(this.look(Math.max(0, row), middle)),
      '+': () => this.state.zoom(0.5),
      '=': () => this.state.zoom(0.5),
      '-': () => this.state.zoom(2),
      Home: () => this.state.show(0, this.state.end),
    };
    const letters: Record<string, () => void> = {
      w: () => this.state.zoom(0.7),
      s: () => this.state.zoom(1 / 0.7),
      a: () => this.state.pan(-0.1),
      d: () => this.state.pan(0.1),
    };
    const action = actions[event.key] ?? letters[event.key.toLowerCase()];
    if (!action || event.ctrlKey || event.metaKey || event.altKey || this.rowCount === 0) return;
    event.preventDefault();
    action();
  }
}
