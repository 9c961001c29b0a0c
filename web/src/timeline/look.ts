// What is at a place of the timeline, and how it is said.

import { count, duration, instant, percent } from '../format';
import { placeName } from '../scene';
import type { Hit, View } from './view';

/** What is at a row and a time; within `near` nanoseconds for decisions and short slices. */
export function look(view: View, row: number, time: number, near: number): Hit {
  const hit: Hit = { row, time };
  if (view.settings.rowsBy === 'cpu') {
    hit.cpu = view.state.cpus[row];
    if (view.scene.exact) hit.slice = view.scene.at(hit.cpu, time) ?? nearest(view, hit.cpu, time, near);
  } else if (view.settings.rowsBy === 'task' && !view.rows[row].folded && view.scene.exact) {
    hit.slice = sliceOfTask(view, view.rows[row].tasks[0], time, near);
    if (hit.slice !== undefined) hit.cpu = view.scene.cpu[hit.slice];
  }
  if (view.settings.decisions) {
    const marks = view.scene.decisions;
    const [low, high] = view.marksIn(marks.time);
    let closest = near;
    for (let i = low; i < high; i++) {
      const here = inRow(view, row, marks.a[i], marks.b[i] - 1);
      if (here && Math.abs(marks.time[i] - time) <= closest) {
        closest = Math.abs(marks.time[i] - time);
        hit.decision = i;
      }
    }
  }
  if (view.settings.moves) hit.move = nearestMove(view, hit, near);
  return hit;
}

/** Whether what happens to a task on a CPU belongs into a row. */
function inRow(view: View, row: number, cpu: number, task: number): boolean {
  const { rowsBy } = view.settings;
  if (rowsBy === 'cpu') return view.state.cpus[row] === cpu;
  return rowsBy === 'llc' ? view.llcs[row].includes(cpu) : view.rows[row].tasks.includes(task);
}

/** The closest migration of the row within a distance: of the row's task, or from or to its CPU. */
function nearestMove(view: View, hit: Hit, near: number): number | undefined {
  const { moves } = view.scene;
  const [low, high] = view.marksIn(moves.time);
  let found: number | undefined;
  let closest = near;
  for (let i = low; i < high; i++) {
    const distance = Math.abs(moves.time[i] - hit.time);
    if (distance > closest) continue;
    if (inRow(view, hit.row, moves.b[i], moves.a[i]) || inRow(view, hit.row, moves.c[i], moves.a[i])) [found, closest] = [i, distance];
  }
  return found;
}

/** A migration with its decision, in words. */
function migration(view: View, i: number): string[] {
  const { scene, state } = view;
  const { moves, decisions, header } = scene;
  const [time, task, from, to] = [moves.time[i], moves.a[i], moves.b[i], moves.c[i]];
  const { core, llc, node, socket, os } = state.machine;
  const levels: readonly (readonly [string, number[]])[] = [['core', core], ['LLC', llc], ['NUMA node', node], ['socket', socket]];
  const shared = levels.find(([, column]) => column[from] === column[to])?.[0];
  const lines = [
    `Migration of ${scene.taskName(task)} from cpu${os[from]} to cpu${os[to]} at ${instant(time, 1)} (${shared ? `same ${shared}` : 'another socket'})`,
    `Decision: ${header.move_kinds[moves.value[i]]}: ${header.move_reasons[moves.value[i]]}`,
  ];
  for (let k = 0; k < decisions.time.length && decisions.time[k] <= time; k++) {
    if (decisions.time[k] !== time || decisions.b[k] - 1 !== task) continue;
    lines.push(`The scheduler reported, on cpu${os[decisions.a[k]]}: ${header.decisions[decisions.c[k]]}${told(view, k)}`);
  }
  const bins = header.length_bins;
  const bin = Math.min(bins - 1, Math.floor((time / header.end_ns) * bins));
  lines.push(`Runnable tasks around then: ${scene.lengths[from * bins + bin].toFixed(2)} on cpu${os[from]}, ${scene.lengths[to * bins + bin].toFixed(2)} on cpu${os[to]}`);
  lines.push(`warmcore explain ${state.run.name} --scheduler ${header.scheduler} --task ${scene.taskName(task)} --at ${time}ns`);
  return lines;
}


/** The closest slice on a CPU within a distance, for slices thinner than a pixel. */
function nearest(view: View, cpu: number, time: number, near: number): number | undefined {
  const after = view.scene.after(cpu, time);
  const candidates = [after - 1, after].filter((i) => i >= view.scene.first[cpu] && i < view.scene.first[cpu + 1]);
  const distance = (i: number): number => Math.max(view.scene.start[i] - time, time - view.scene.end[i]);
  return candidates.filter((i) => distance(i) <= near).sort((a, b) => distance(a) - distance(b))[0];
}

function sliceOfTask(view: View, task: number, time: number, near: number): number | undefined {
  const { first, slices } = view.scene.slicesByTask();
  let [low, high] = [first[task], first[task + 1]];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (view.scene.end[slices[middle]] > time) high = middle;
    else low = middle + 1;
  }
  return low < first[task + 1] && view.scene.start[slices[low]] <= time + near ? slices[low] : undefined;
}

/** What is there, in words. */
export function words(view: View, hit: Hit, long: boolean): string {
  const { scene, state } = view;
  const { machine } = state;
  const { core, llc, node, socket, os } = machine;
  const inNode = (cpu: number): string => placeName(machine, 'node', node[cpu]).replace('node', 'node ');
  const inSocket = (cpu: number): string => placeName(machine, 'socket', socket[cpu]).replace('socket', 'socket ');
  const lines: string[] = hit.move === undefined ? [] : migration(view, hit.move);
  const place = (cpu: number): string =>
    `cpu${os[cpu]} (core ${core[cpu]}, llc ${llc[cpu]}, ${inNode(cpu)}, ${inSocket(cpu)})`;
  if (hit.slice !== undefined) {
    const i = hit.slice;
    const task = scene.task[i];
    const [start, end] = [scene.start[i], scene.end[i]];
    lines.push(`${scene.taskName(task)} on ${place(scene.cpu[i])}`);
    lines.push(`${instant(start, 1)} – ${instant(end, 1)}: ran ${duration(end - start)}, ended ${scene.header.slice_ends[scene.why[i]]}`);
    const reason = scene.reason?.[i];
    if (reason) lines.push(`Placed there: ${scene.header.place_reasons[reason - 1]}.`);
    const wake = long ? scene.wakeOf(i) : undefined;
    if (wake !== undefined) {
      const { time, a, b } = scene.wakes;
      lines.push(`Woken by ${a[wake] > 0 ? scene.taskName(a[wake] - 1) : 'an interrupt'} on cpu${os[b[wake]]} at ${instant(time[wake], 1)}.`);
    }
    if (long) {
      const delay = scene.delay?.[i];
      const waited = delay === undefined ? 'not kept in a page of this size' : delay < 0 ? 'not observed' : duration(delay);
      lines.push(`Run delay before it: ${waited}. Group ${scene.header.groups[scene.header.task_groups[task]]}, process ${scene.header.task_processes[task]}.`);
    }
  } else if (view.settings.rowsBy === 'cpu' && hit.cpu !== undefined) {
    lines.push(`${place(hit.cpu)}, ${instant(hit.time, 1)}: ${scene.exact ? 'idle' : overviewWords(view, hit.cpu, hit.time)}`);
  } else if (view.settings.rowsBy === 'llc') {
    const cpus = view.llcs[hit.row];
    const stretch = (state.to - state.from) / 200;
    const [from, to] = [Math.max(0, hit.time - stretch), Math.min(scene.header.end_ns, hit.time + stretch)];
    const busy = cpus.reduce((sum, cpu) => sum + scene.busyIn(cpu, from, to), 0) / cpus.length / Math.max(1, to - from);
    lines.push(`llc${llc[cpus[0]]} (${inNode(cpus[0])}, ${inSocket(cpus[0])}, ${cpus.length} CPUs), ${instant(hit.time, 1)}: busy ${percent(busy)} around then`);
  } else {
    lines.push(`${view.rows[hit.row].label}, ${instant(hit.time, 1)}${view.rows[hit.row].folded ? '' : ': not running'}`);
  }
  if (view.settings.rowsBy === 'cpu' && hit.cpu !== undefined && (long || view.settings.colourBy === 'length')) {
    const bins = scene.header.length_bins;
    const bin = Math.min(bins - 1, Math.floor((hit.time / scene.header.end_ns) * bins));
    lines.push(`Runnable tasks around then: ${scene.lengths[hit.cpu * bins + bin].toFixed(2)}`);
  }
  const counter = view.counter;
  if (view.settings.rowsBy === 'cpu' && hit.cpu !== undefined && counter !== undefined) {
    const bins = scene.header.counter_bins;
    const bin = Math.min(bins - 1, Math.floor((hit.time / scene.header.end_ns) * bins));
    const seconds = scene.header.end_ns / bins / 1e9;
    const where = scene.header.counter_places === 'llc' ? `llc${llc[hit.cpu]}` : `cpu${os[hit.cpu]}`;
    lines.push(`${scene.header.counters[counter]} of ${where} around then: ${count(scene.counted(counter, hit.cpu, bin) / seconds)} per second`);
  }
  if (hit.decision !== undefined) {
    const marks = scene.decisions;
    const i = hit.decision;
    const name = scene.header.decisions[marks.c[i]] ?? `decision ${marks.c[i]}`;
    const task = marks.b[i] > 0 ? ` (${scene.taskName(marks.b[i] - 1)}${moved(view, marks.time[i], marks.b[i] - 1)})` : '';
    lines.push(`Decision on cpu${os[marks.a[i]]} at ${instant(marks.time[i], 1)}: ${name}${task}${told(view, i)}`);
  }
  return lines.join('\n');
}

/** What the value of a decision says: an LLC, a node or a CPU even if it is number 0, a bare number only if it is not 0. */
function told(view: View, i: number): string {
  const { decisions, header } = view.scene;
  const value = decisions.value[i];
  const what = header.decision_values[decisions.c[i]] ?? '';
  return what === '' ? (value === 0 ? '' : ` (${value})`) : ` (${what} ${value})`;
}

/** From where to where a task moved at a time, if it did. */
function moved(view: View, time: number, task: number): string {
  const { moves } = view.scene;
  const { os } = view.state.machine;
  for (let i = 0; i < moves.time.length && moves.time[i] <= time; i++) {
    if (moves.time[i] === time && moves.a[i] === task) return `, from cpu${os[moves.b[i]]} to cpu${os[moves.c[i]]}`;
  }
  return '';
}

function overviewWords(view: View, cpu: number, time: number): string {
  const level = view.scene.levels[0];
  const bin = Math.min(level.bins - 1, Math.floor((time / view.scene.header.end_ns) * level.bins));
  const who = level.task[cpu * level.bins + bin];
  if (who === 0) return 'idle';
  const busy = percent(level.busy[cpu * level.bins + bin] / 255);
  return `mostly ${view.scene.taskName(who - 1)}, busy ${busy} of ${duration(view.scene.header.end_ns / level.bins)}`;
}
