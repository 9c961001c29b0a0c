// The page does what a reader expects of it. Skipped, and said so, where there is no Chromium.
import assert from 'node:assert/strict';
import { mkdirSync, readFileSync, writeFileSync, existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { test } from 'node:test';
import { browser, open, scratch, skip, unfold } from './page.mjs';

const MACHINE = '2s1n2l4c1t';
const SPIN = `compare -m ${MACHINE} -w spin:-n24,-p0,-u5ms,-d60ms,--profile=mysql-select -s cfs,rr --trials 8 --out run`;

test('the page opens from a file, without a request or an error, with the numbers of the run', { skip }, async (t) => {
  const work = scratch(t);
  work.run(SPIN);
  const { page, faults } = await open(await browser(t), work.join('run/report.html'));
  const verdict = work.json('run/verdict.json');
  assert.equal(await page.textContent('.answer'), verdict.verdict.sentence);
  const shown = await page.$$eval('#verdict-table-0 tbody tr td:nth-child(2)', (cells) => cells.map((cell) => Number(cell.dataset.value)));
  assert.deepEqual(shown, verdict.schedulers.map((scheduler) => scheduler.measures[verdict.primary].summary.median));
  // The plot of ratios has one point per trial and scheduler, and the hover text of each is the run's ratio.
  const points = await page.$$eval('figure[data-figure="ratio"] .drawing.wide circle title', (titles) => titles.map((title) => title.textContent));
  assert.equal(points.length, 16);
  const [base, other] = verdict.schedulers.map((scheduler) => scheduler.measures[verdict.primary].points);
  for (const [trial, text] of points.slice(8).entries()) {
    const ratio = Number(/: ([0-9.]+) of the baseline/.exec(text)[1]);
    assert.ok(Math.abs(ratio - other[trial] / base[trial]) < 0.0006, text);
  }
  assert.deepEqual(faults, []);
});

test('the timeline zooms, pans, tells about slices and follows the keyboard', { skip }, async (t) => {
  const work = scratch(t);
  work.run(SPIN);
  const { page, faults } = await open(await browser(t), work.join('run/report.html'));
  const range = page.locator('.range').first();
  const view = page.locator('.view[data-view="timeline"]');
  const canvas = view.locator('canvas').first();
  await canvas.scrollIntoViewIfNeeded();
  await view.getByLabel('Rows').selectOption('cpu');
  const whole = await range.textContent();
  await page.getByRole('button', { name: 'Zoom in' }).click();
  await page.waitForFunction((before) => document.querySelector('.range').textContent !== before, whole);
  assert.match(await range.textContent(), /\(30 ms\)/, 'half of the run');
  await page.getByRole('button', { name: 'Show the whole run' }).click();
  await page.waitForFunction((before) => document.querySelector('.range').textContent === before, whole);

  const box = await canvas.boundingBox();
  await page.mouse.click(box.x + box.width * 0.12, box.y + 6);
  await page.waitForFunction(() => /spin-\d+ on cpu0/.test(document.querySelector('.detail').textContent));
  assert.match(await page.textContent('.detail'), /^cfs: spin-\d+ on cpu0 \(core 0, llc 0, node 0, socket 0\)\n.*ran .*\nPlaced there: its affinity leaves it this CPU only\.\nRun delay/);
  await page.mouse.move(box.x + box.width * 0.12, box.y + 6);
  assert.match(await (await page.waitForSelector('.tip:not([hidden])')).textContent(), /Placed there: its affinity/);

  await canvas.focus();
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('+');
  await page.keyboard.press('ArrowRight');
  await page.waitForFunction((before) => document.querySelector('.range').textContent !== before, whole);
  await page.keyboard.press('Home');
  await page.waitForFunction((before) => document.querySelector('.range').textContent === before, whole);
  // The letters of the left hand work wherever the reader is.
  await page.evaluate(() => document.activeElement.blur());
  for (const key of ['w', 'd', 'a', 'd']) await page.keyboard.press(key);
  await page.waitForFunction((before) => document.querySelector('.range').textContent !== before, whole);
  await canvas.focus();
  await page.keyboard.press('Home');
  await page.waitForFunction((before) => document.querySelector('.range').textContent === before, whole);

  // Shift and drag choose a span; both schedulers show it, because there is one span.
  await page.keyboard.down('Shift');
  await page.mouse.move(box.x + box.width * 0.4, box.y + 20);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width * 0.6, box.y + 20, { steps: 4 });
  await page.mouse.up();
  await page.keyboard.up('Shift');
  await page.waitForFunction((before) => document.querySelector('.range').textContent !== before, whole);
  assert.deepEqual(faults, []);
});

test('schedulers can be hidden, rows can be tasks, groups unfold, and colours follow', { skip }, async (t) => {
  const work = scratch(t);
  work.run('compare -m 2s1n2l4c1t -w hackbench:-T,-p,-f10,-g9,-l4 -s cfs,rr --trials 2 --out run');
  const { page, faults } = await open(await browser(t), work.join('run/report.html'));
  const view = page.locator('.view[data-view="timeline"]');
  await view.scrollIntoViewIfNeeded();
  await view.getByLabel('rr', { exact: true }).uncheck();
  await page.waitForFunction(() => document.querySelectorAll('.view[data-view="timeline"] .pane:not([hidden])').length === 1);
  assert.equal(await page.locator('.view[data-view="heatmap"] .pane:not([hidden])').count(), 1, 'in every view');
  assert.equal(await view.getByLabel('Rows').inputValue(), 'task');
  assert.equal(await view.getByLabel('Colour').inputValue(), 'llc');
  const group = view.locator('.folds button').first();
  await group.waitFor();
  const tall = () => page.evaluate(() => document.querySelector('.view[data-view="timeline"] .scroller').scrollHeight);
  const folded = await tall();
  assert.equal(await group.getAttribute('aria-pressed'), 'false');
  await group.click();
  await page.waitForFunction((before) => document.querySelector('.view[data-view="timeline"] .scroller').scrollHeight > before, folded);
  assert.equal(await group.getAttribute('aria-pressed'), 'true');
  for (const colour of ['node', 'socket', 'llc']) await view.getByLabel('Colour').selectOption(colour);
  await view.getByLabel('Rows').selectOption('cpu');
  for (const colour of ['task', 'process', 'length', 'group']) await view.getByLabel('Colour').selectOption(colour);
  await view.getByLabel('Rows').selectOption('llc');
  for (const colour of ['task', 'node', 'group']) await view.getByLabel('Colour').selectOption(colour);
  await view.getByLabel('wakeups').check();
  await unfold(page);
  await view.getByLabel('migrations').check();
  await page.locator('.view[data-view="heatmap"] select').nth(1).selectOption('llc');
  await page.locator('.view[data-view="heatmap"] select').nth(0).selectOption('task');
  await page.waitForTimeout(200);
  assert.deepEqual(faults, []);
});

test('a map names its thickest edge only where it draws one', { skip }, async (t) => {
  const work = scratch(t);
  work.run('compare -m 1s1n4l2c1t -w hackbench:-T,-p,-f3,-g2,-l20 -s eevdf,rr --trials 1 --out run');
  const { page, faults } = await open(await browser(t), work.join('run/report.html'));
  const maps = async () => {
    await page.locator('#machine-0').scrollIntoViewIfNeeded();
    await page.waitForTimeout(700);
    return page.$$eval('figure[data-figure^="machine-"] svg', (found) =>
      found.map((svg) => [svg.querySelectorAll('polyline.traffic:not(.none)').length > 0, svg.querySelector('text.scale').textContent.includes('thickest edge')]));
  };
  const whole = await maps();
  assert.ok(whole.some(([edges]) => edges));
  for (let i = 0; i < 12; i++) await page.getByRole('button', { name: 'Zoom in' }).click();
  const close = await maps();
  assert.ok(close.some(([edges]) => !edges), 'a moment in which nothing moves');
  for (const [edges, named] of [...whole, ...close]) assert.equal(named, edges);
  assert.deepEqual(faults, []);
});

test('tables sort, filter and define their measures', { skip }, async (t) => {
  const work = scratch(t);
  work.run(SPIN);
  const { page, faults } = await open(await browser(t), work.join('run/report.html'));
  const values = () => page.$$eval('#verdict-table-0 tbody tr td:nth-child(2)', (cells) => cells.map((cell) => Number(cell.dataset.value)));
  const heading = page.locator('#verdict-table-0 thead th').nth(1);
  const sorted = (list) => [...list].sort((a, b) => a - b);
  await heading.getByRole('button').click();
  assert.deepEqual(await values(), sorted(await values()));
  await heading.getByRole('button').click();
  assert.deepEqual(await values(), sorted(await values()).reverse());
  assert.equal(await heading.getAttribute('aria-sort'), 'descending');
  assert.match(await heading.getAttribute('title'), /progress of the tasks' own programs.*higher is better/);
  await unfold(page);
  await page.getByLabel('Find').fill('wakeup mean');
  const rows = await page.$$eval('#measures-table-0 tbody tr:not([hidden])', (found) => found.map((row) => row.dataset.measure));
  assert.ok(rows.includes('wakeup_mean_ns') && rows.length < 6, rows.join());
  const verdict = work.json('run/verdict.json');
  const cell = page.locator('tr[data-measure="wakeup_mean_ns"] td.n').first();
  assert.equal(Number(await cell.getAttribute('data-value')), verdict.schedulers[0].measures.wakeup_mean_ns.summary.median);
  assert.deepEqual(faults, []);
});

test('what is saved from the page is what the run directory holds', { skip }, async (t) => {
  const work = scratch(t);
  work.run(SPIN);
  const { page } = await open(await browser(t), work.join('run/report.html'));
  const download = page.waitForEvent('download');
  await page.getByRole('link', { name: 'About' }).click();
  await page.getByRole('button', { name: 'verdict.json' }).click();
  const saved = readFileSync(await (await download).path(), 'utf8');
  assert.equal(saved, readFileSync(work.join('run/verdict.json'), 'utf8'));
});

test('names in a trace are shown and never run', { skip }, async (t) => {
  const work = scratch(t);
  const hostile = '</script><img src=x onerror=alert(1)><script>alert(2)</script>';
  writeFileSync(work.join('hostile.json'), JSON.stringify({ tasks: { [hostile]: { loop: 3, run: 1000, sleep: 500 } } }));
  work.run(`compare -m ${MACHINE} -w ./hostile.json -s cfs,rr --trials 2 --out run`);
  const { page, faults } = await open(await browser(t), work.join('run/report.html'));
  const view = page.locator('.view[data-view="timeline"]');
  await view.scrollIntoViewIfNeeded();
  await view.getByLabel('Rows').selectOption('task');
  await page.waitForTimeout(200);
  assert.equal(await page.locator('img').count(), 0);
  assert.deepEqual(faults, []);
});

test('where the time went has the run\'s causes, differences and shares', { skip }, async (t) => {
  const work = scratch(t);
  work.run(`compare -m ${MACHINE} -w hackbench:-T,-p,-f4,-g2,-l20 -s cfs,rr --trials 2 --out run`);
  const { page, faults } = await open(await browser(t), work.join('run/report.html'));
  const split = work.json('run/verdict.json').time_split;
  const rows = await page.$$eval('table.gaps tbody tr', (found) => found.map((row) => [row.dataset.cause, ...[...row.cells].slice(1).map((cell) => cell.dataset.value)]));
  assert.deepEqual(rows.map((row) => row[0]), [...split.causes, ...(split.only_in_gaps ?? [])].map((cause) => cause.name));
  for (const [cause, difference, share] of rows) {
    const line = split.gaps[0].lines.find((found) => found.name === cause);
    assert.equal(Number(difference), line?.difference ?? 0, cause);
    assert.equal(share, line?.share === undefined ? '' : String(line.share), cause);
  }
  // One bar per cause and scheduler, each with its share; those that are too small to be seen are one bar.
  const bars = await page.$$eval('figure[data-figure="task-time"] .drawing.wide rect title', (titles) => titles.map((title) => title.textContent));
  for (const { label } of split.schedulers) {
    const own = bars.filter((text) => text.startsWith(`${label}: `)).join();
    for (const cause of split.causes) assert.ok(own.includes(`${cause.title} `), `${cause.title} in ${own}`);
  }
  assert.ok(bars.some((text) => text.startsWith('rr: lines fetched from another socket ')), bars.join('\n'));
  assert.ok(await page.locator('#time-0 p', { hasText: split.gaps[0].sentence }).isVisible());
  assert.deepEqual(faults, []);
});

test('counters colour the timeline, and the machine shows where lines came from in the chosen span', { skip }, async (t) => {
  const work = scratch(t);
  work.run(SPIN);
  const { page, faults } = await open(await browser(t), work.join('run/report.html'));
  const view = page.locator('.view[data-view="timeline"]');
  await view.scrollIntoViewIfNeeded();
  await view.getByLabel('Rows').selectOption('cpu');
  await view.getByLabel('Colour').selectOption({ label: 'counter: instructions' });
  await page.waitForFunction(() => /G\/s/.test(document.querySelector('.view[data-view="timeline"] .legend').textContent));
  const canvas = view.locator('canvas').first();
  const box = await canvas.boundingBox();
  await page.mouse.click(box.x + box.width * 0.6, box.y + 6);
  await page.waitForFunction(() => /instructions of cpu0 around then: [0-9.]+G per second/.test(document.querySelector('.detail').textContent));
  // The bars begin as the figure's own, and follow the span.
  const bars = () => page.$$eval('figure[data-figure^="machine-0"] rect.source title', (titles) => titles.map((title) => title.textContent));
  await page.locator('#machine-0').scrollIntoViewIfNeeded();
  const whole = await bars();
  assert.ok(whole.some((text) => / [1-9][0-9.]*[kM]? cache lines\/s from memory of the own node/.test(text)), whole.join('\n'));
  await page.evaluate(() => document.querySelector('button[aria-label="Zoom in"]').click());
  await page.evaluate(() => document.querySelector('button[aria-label="Zoom in"]').click());
  await page.waitForFunction((before) => [...document.querySelectorAll('figure[data-figure^="machine-0"] rect.source title')].some((title, i) => title.textContent !== before[i]), whole);
  assert.deepEqual(faults, []);
});

test('the map says how busy each CPU was and where the tasks of each role ran, in the chosen span', { skip }, async (t) => {
  const work = scratch(t);
  work.run(SPIN);
  const { page, faults } = await open(await browser(t), work.join('run/report.html'));
  const map = 'figure[data-figure^="machine-0"]';
  // Share by the words, and the filled part.
  const cpus = () =>
    page.$$eval(`${map} rect.cpu`, (found) =>
      found.map((rect) => [Number(/busy (\S+) %/.exec(rect.querySelector('title').textContent)[1]) / 100, Number(rect.getAttribute('height')) / Number(rect.dataset.height)]));
  const rows = () =>
    page.$$eval(`${map} rect.resident`, (bars) =>
      bars.map((bar) => [bar.dataset.llc, Number(bar.querySelector('title').textContent.split(' ').at(-6)) / 100, Number(bar.getAttribute('width')) / Number(bar.dataset.width), bar.querySelector('title').textContent]));
  await page.locator('#machine-0').scrollIntoViewIfNeeded();
  await page.waitForTimeout(400);
  const whole = await cpus();
  assert.equal(whole.length, 16);
  const busy = work.json('run/verdict.json').schedulers[0].measures.busy_share.summary;
  const mean = whole.reduce((sum, [share]) => sum + share, 0) / whole.length;
  assert.ok(mean > busy.min - 0.01 && mean < busy.max + 0.01, `${mean} is the run's busy share ${busy.median}`);
  for (const [share, filled] of whole) assert.ok(Math.abs(share - filled) < 0.02, `${share} is drawn as ${filled}`);
  const spread = await rows();
  assert.equal(spread.length, 4, 'one role on four LLCs');
  assert.match(spread[0][3], /^.*spin.* on llc0: [\d.]+ % of its run time$/);
  assert.ok(Math.abs(spread.reduce((sum, [, share]) => sum + share, 0) - 1) < 0.02, spread.join(' | '));
  // 24 spinners on one CPU for 5 ms, then spread until 60 ms. In the first milliseconds one CPU works, and all run time is in its LLC.
  const view = page.locator('.view[data-view="timeline"]');
  for (let i = 0; i < 5; i++) await view.getByRole('button', { name: 'Zoom in' }).click();
  for (let i = 0; i < 60; i++) await view.getByRole('button', { name: 'Earlier' }).click();
  await page.locator('#machine-0').scrollIntoViewIfNeeded();
  // Drawn when the hand rests.
  await page.waitForTimeout(800);
  const early = await rows();
  assert.deepEqual(early.map(([, share]) => Math.round(share * 100)), [100, 0, 0, 0]);
  assert.deepEqual((await cpus()).map(([share]) => Math.round(share * 100)), [100, ...Array(15).fill(0)]);
  assert.deepEqual(faults, []);
});

test('what is counted begins after the warm-up, as the tables do, and maps share a scale', { skip }, async (t) => {
  const work = scratch(t);
  work.run(`compare -m ${MACHINE} -w spin:-n24,-p0,-u5ms,-d60ms -s cfs,rr --warm-up 20ms --trials 1 --out run`);
  const { page, faults } = await open(await browser(t), work.join('run/report.html'));
  const headings = await page.$$eval('.view[data-view="timeline"] .pane h3 small', (found) => found.map((small) => small.textContent));
  assert.equal(headings.length, 2);
  const number = (text) => Number(/^([0-9.]+) slices?, /.exec(text)?.[1]);
  for (const text of headings) assert.match(text, /^[0-9.]+k? slices?, [0-9.]+k? migrations?(, .*)?$/);
  assert.ok(headings.every((text) => !text.includes('warm-up')), headings.join(' | '));
  const note = await page.$eval('#timeline-0 > .note', (found) => found.textContent);
  assert.match(note, / Counts are after the warm-up of 20 ms\.$/);
  const measured = await page.$eval('tr[data-measure="slices"] td.n', (cell) => Number(cell.dataset.value));
  if (measured < 1000) assert.equal(number(headings[0]), measured);
  await page.locator('#machine-0').scrollIntoViewIfNeeded();
  const scales = await page.$$eval('#machine-0 text.scale', (found) => found.map((text) => text.textContent));
  assert.ok(new Set(scales).size <= 1, scales.join(' | '));
  const notes = await page.$$eval('#machine-0 .note', (found) => found.map((one) => one.textContent));
  assert.ok(!notes.some((text) => text.includes('in the whole trial')), notes.join(' | '));
  assert.deepEqual(faults, []);
});

test('the address of a page is a link to the moment that it shows', { skip }, async (t) => {
  const work = scratch(t);
  work.run(SPIN);
  const instance = await browser(t);
  const { page } = await open(instance, work.join('run/report.html'));
  await page.locator('.view[data-view="timeline"]').getByRole('button', { name: 'Zoom in' }).click();
  await page.waitForFunction(() => /^#at-0=\d+-\d+ns$/.test(location.hash));
  const [address, range] = [page.url(), await page.textContent('.range')];
  const other = await open(instance, decodeURI(address.replace('file://', '')));
  await other.page.waitForFunction((before) => document.querySelector('.range').textContent === before, range);
  assert.deepEqual(other.faults, []);
});

test('a task can be looked for, and its slice tells who woke it', { skip }, async (t) => {
  const work = scratch(t);
  work.run(`compare -m ${MACHINE} -w hackbench:-T,-p,-f4,-g2,-l20 -s cfs --trials 1 --out run`);
  const { page, faults } = await open(await browser(t), work.join('run/report.html'));
  const view = page.locator('.view[data-view="timeline"]');
  const name = await page.evaluate(() => document.querySelector('.seek') !== null);
  assert.ok(name, 'there is a field for it');
  await view.locator('.seek').fill('receiver');
  const told = async () => view.locator('.detail').textContent();
  let found = '';
  for (let i = 0; i < 40 && !/Woken by /.test(found); i++) {
    await view.locator('.seek').press('Enter');
    await page.waitForTimeout(60);
    found = await told();
    assert.match(found, /^cfs: \S*receiver\S* on cpu\d+ /);
  }
  assert.match(found, /Woken by \S+ on cpu\d+ at /);
  await view.locator('.seek').fill('nobody-of-that-name');
  await view.locator('.seek').press('Enter');
  assert.match(await told(), /No task with/);
  assert.deepEqual(faults, []);
});

test('the timeline opens on what was measured', { skip }, async (t) => {
  const work = scratch(t);
  work.run(`compare -m ${MACHINE} -w spin:-n8,-d60ms -s cfs --trials 1 --warm-up 20ms --out run`);
  const { page } = await open(await browser(t), work.join('run/report.html'));
  const range = page.locator('.range').first();
  assert.match(await range.textContent(), /^20\S* ms – 60\S* ms \(40 ms\)$/);
  await page.getByRole('button', { name: 'Show the whole run' }).click();
  await page.waitForFunction(() => /^0\S* ms – /.test(document.querySelector('.range').textContent));
});

test('a machine of very many CPUs has a row for each LLC and edges between nodes', { skip }, async (t) => {
  const work = scratch(t);
  work.run('compare -m turin-dense -w hackbench:-T,-p,-f10,-g10,-l5 -s eevdf --trials 1 --out run');
  const { page, faults } = await open(await browser(t), work.join('run/report.html'));
  const view = page.locator('.view[data-view="timeline"]');
  assert.equal(await view.getByLabel('Rows').inputValue(), 'llc');
  const edges = await page.$$eval('figure[data-figure^="machine-0"] polyline', (found) => found.map((edge) => edge.dataset.names));
  assert.ok(edges.length <= 12, `${edges.length} edges`);
  const [labels, width] = await page.$$eval('figure[data-figure^="machine-0"] svg', ([svg]) => [[...svg.querySelectorAll('text')].map((text) => text.getBBox()).map((box) => box.x + box.width), svg.viewBox.baseVal.width]);
  assert.ok(labels.every((right) => right <= width), 'no label is cut');
  assert.deepEqual(faults, []);
});

test('a row of an LLC counts all of its CPUs, idle ones too', { skip }, async (t) => {
  const work = scratch(t);
  work.run('compare -m 1s1n2l4c1t -w spin:-n1,-d60ms -s eevdf --trials 1 --out run');
  const { page } = await open(await browser(t), work.join('run/report.html'));
  const view = page.locator('.view[data-view="timeline"]');
  await view.getByLabel('Rows').selectOption('llc');
  const canvas = view.locator('canvas').first();
  await canvas.scrollIntoViewIfNeeded();
  const box = await canvas.boundingBox();
  await page.mouse.click(box.x + box.width / 2, box.y + 5);
  // One of four CPUs is busy; the other LLC, which is idle, has no row.
  assert.match(await view.locator('.detail').textContent(), /^eevdf: llc\d+ \(.*, 4 CPUs\), .*: busy 25 % around then$/);
  assert.ok(box.height < 60, `one row in ${box.height} pixels`);
});

test('a timeline of many schedulers has rows of panes, so that names and marks of time fit', { skip }, async (t) => {
  const work = scratch(t);
  work.run(`compare -m 1s1n2l4c1t -w spin:-n4,-p0,-u5ms,-d20ms -s cfs,eevdf,rr,fifo,ule,cache-aware,topology-aware,scx-native --trials 1 --out run`);
  const { page } = await open(await browser(t), work.join('run/report.html'), { width: 1400 });
  const panes = await page.$$eval('.view[data-view="timeline"] .pane', (found) => found.map((pane) => pane.getBoundingClientRect()).map(({ left, width }) => [left, width]));
  assert.equal(panes.length, 8);
  assert.ok(panes.every(([, width]) => width >= 279), panes.map(([, width]) => width).join());
  assert.equal(new Set(panes.map(([left]) => Math.round(left))).size, 4);
});

test('what tasks are ranked by is drawn for every scheduler, with its data', { skip }, async (t) => {
  const work = scratch(t);
  work.run(`compare -m ${MACHINE} -w spin:-n24,-p0,-u5ms,-d60ms -s eevdf,cfs,rr --trials 2 --out run`);
  const { page, faults } = await open(await browser(t), work.join('run/report.html'));
  const figures = await page.$$eval('figure[data-figure^="score-"]', (found) => found.map((figure) => [figure.dataset.figure, figure.querySelector('h4').textContent, figure.querySelectorAll('polyline').length]));
  assert.deepEqual(figures.map(([name]) => name), ['score-0-eevdf-vlag-ns', 'score-0-eevdf-deadline-ns', 'score-1-cfs-vruntime-ns', 'score-2-rr-position']);
  assert.equal(figures[0][1], 'Lag under eevdf');
  assert.ok(figures.every(([, , lines]) => lines >= 24), figures.join(' | '));
  await unfold(page);
  const download = page.waitForEvent('download');
  await page.locator('figure[data-figure="score-0-eevdf-vlag-ns"]').getByRole('button', { name: 'CSV' }).click();
  const csv = readFileSync(await (await download).path(), 'utf8').split('\n');
  assert.equal(csv[0], 'row,task,name,time_ns,least,last,most');
  assert.ok(csv.length > 200, `${csv.length} samples`);
  assert.deepEqual(faults, []);
});

test('groups of the heatmap unfold with the pointer and the keyboard, and rows can be the LLC they ran in', { skip }, async (t) => {
  const work = scratch(t);
  work.run('compare -m 2s1n2l4c1t -w hackbench:-T,-p,-f10,-g8,-l2 -s cfs --trials 2 --out run');
  const { page, faults } = await open(await browser(t), work.join('run/report.html'));
  await unfold(page);
  const view = page.locator('.view[data-view="heatmap"]');
  await view.scrollIntoViewIfNeeded();
  const canvas = view.locator('canvas').first();
  const rows = async () => Number(/^(\d+) rows/.exec(await canvas.getAttribute('aria-label'))?.[1]);
  await page.waitForFunction(() => /^\d+ rows/.test(document.querySelector('.view[data-view="heatmap"] canvas').getAttribute('aria-label') ?? ''));
  const folded = await rows();
  assert.ok(folded < 20, `${folded} rows for 161 tasks`);
  await canvas.focus();
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('ArrowDown');
  assert.match(await view.locator('[role="status"]').textContent(), /cfs: .* ×80, folded: Enter unfolds it: ran /);
  await page.keyboard.press('Enter');
  assert.equal(await rows(), folded + 80);
  await page.keyboard.press('Enter');
  assert.equal(await rows(), folded);
  const box = await canvas.boundingBox();
  await page.mouse.click(box.x + 20, box.y + 20 + 1.5 * 14);
  assert.equal(await rows(), folded + 80, 'a click on its name unfolds the second group');
  await view.locator('select').first().selectOption('cluster');
  assert.ok((await rows()) <= 5, 'at most one row per LLC, and one for tasks that did not run');
  assert.deepEqual(faults, []);
});

test('what was never on the screen is printed too', { skip }, async (t) => {
  const work = scratch(t);
  work.run(SPIN);
  const { page } = await open(await browser(t), work.join('run/report.html'));
  const drawn = () =>
    page.$$eval('.view[data-view="heatmap"] canvas', (canvases) => canvases.map((canvas) => canvas.width * canvas.height > 0
      && new Set(new Uint32Array(canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.buffer)).size > 3));
  await page.waitForTimeout(300);
  assert.deepEqual(await drawn(), [false, false], 'the heatmap waits until it is on the screen');
  await page.evaluate(() => dispatchEvent(new Event('beforeprint')));
  assert.deepEqual(await drawn(), [true, true]);
});

test('on paper nothing is cut, squeezed or laid over something else', { skip }, async (t) => {
  const work = scratch(t);
  work.run(SPIN);
  const { page } = await open(await browser(t), work.join('run/report.html'), { width: 1400 });
  await page.evaluate(() => dispatchEvent(new Event('beforeprint')));
  // As wide as a sheet of A4 between its margins.
  await page.setViewportSize({ width: 718, height: 1000 });
  await page.emulateMedia({ media: 'print' });
  const wide = await page.$$eval('table, pre, .drawing svg', (found) =>
    found.filter((element) => element.getBoundingClientRect().right > 719).map((element) => element.className.baseVal ?? element.className));
  assert.deepEqual(wide, [], 'paper does not scroll');
  const squeezed = await page.$$eval('.pane canvas', (found) =>
    found.map((canvas) => canvas.clientWidth / canvas.clientHeight / (canvas.width / canvas.height)).filter((ratio) => Math.abs(ratio - 1) > 0.05));
  assert.deepEqual(squeezed, [], 'what was drawn for the screen keeps its shape');
  const tall = await page.$$eval('figure svg', (found) => found.filter((svg) => svg.getBoundingClientRect().height > 1000).length);
  assert.equal(tall, 0, 'a drawing fits a sheet: one that does not lies over what follows');
});

/** Shows every section once, so that what waits for the screen is drawn. */
async function showAll(page) {
  await page.evaluate(async () => {
    for (const section of document.querySelectorAll('section')) {
      section.scrollIntoView();
      await new Promise((done) => setTimeout(done, 300));
    }
  });
}

test('a page of three schedulers is at most 5000 pixels high until it is unfolded, and nothing that differs is left out', { skip }, async (t) => {
  const work = scratch(t);
  const instance = await browser(t);
  const hackbench = 'hackbench:-T,-p,-f4,-g2,-l20';
  for (const [machine, workload] of [[MACHINE, 'spin:-n128,-p0,-u100ms,-d400ms'], [MACHINE, hackbench], ['2s2n2l4c2t', hackbench]]) {
    work.run(`compare -m ${machine} -w ${workload} -s cfs,eevdf,rr --trials 8 --force --out run`);
    const { page } = await open(instance, work.join('run/report.html'), { width: 1400 });
    await showAll(page);
    const height = await page.evaluate(() => document.documentElement.scrollHeight);
    assert.ok(height <= 5000, `${workload}: ${height} pixels`);
    const small = (await open(instance, work.join('run/report.html'), { width: 390 })).page;
    await showAll(small);
    const narrow = await small.evaluate(() => document.documentElement.scrollHeight);
    assert.ok(narrow <= 5000, `${workload}: ${narrow} pixels at a width of 390`);
    await small.close();
    await unfold(page);
    const { verdict, schedulers } = work.json('run/verdict.json');
    const judged = (name) => schedulers.some((scheduler) => ['better', 'worse'].includes(scheduler.measures[name]?.finding));
    const shown = await page.$$eval('table.measures tbody tr', (rows) => rows.filter((row) => row.offsetHeight > 0).map((row) => row.dataset.measure));
    const zero = (name) => schedulers.every((scheduler) => !scheduler.measures[name]?.summary.median);
    const differ = Object.keys(schedulers[0].measures).filter((name) => judged(name) && !zero(name));
    assert.deepEqual([...shown].sort(), differ.sort(), 'the rows that differ are the ones that are not folded');
    await page.locator('button.unfold').click();
    const all = await page.$$eval('table.measures tbody tr', (rows) => rows.filter((row) => row.offsetHeight > 0).length);
    assert.ok(all > shown.length, `${all} rows unfolded`);
    assert.ok(verdict.sentence.length > 0 && (await page.textContent('h1')).includes('cfs'), 'the headline is the answer');
  }
});

test('on a small screen nothing is wider than the screen but what scrolls by itself', { skip }, async (t) => {
  const work = scratch(t);
  work.run(SPIN);
  const { page } = await open(await browser(t), work.join('run/report.html'), { width: 390 });
  await unfold(page);
  await showAll(page);
  assert.ok((await page.evaluate(() => document.documentElement.scrollWidth)) <= 390);
});

test('on a small screen the answer is whole: the table as far as its verdicts, and the bars of the reason', { skip }, async (t) => {
  const work = scratch(t);
  work.run(`compare -m ${MACHINE} -w spin:-n24,-p0,-u5ms,-d60ms,--profile=mysql-select -s rr,rr:quantum_ns=2000000 --trials 8 --out run`);
  const { page } = await open(await browser(t), work.join('run/report.html'), { width: 390, height: 844 });
  const ends = await page.$$eval('#verdict-table-0 .finding', (found) => found.map((verdict) => verdict.getBoundingClientRect().right));
  assert.ok(ends.length === 2 && Math.max(...ends) <= 390, `verdicts end at ${ends.join()}`);
  const table = await page.locator('#verdict-table-0').boundingBox();
  assert.ok(table.y < 844, 'the table begins on the first screen');
  const drawings = await page.$$eval('#time-0 figure', (figures) =>
    figures.filter((figure) => figure.offsetHeight > 0).map((figure) => {
      const svg = [...figure.querySelectorAll('svg')].find((found) => found.getBoundingClientRect().width > 0);
      const scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
      return [svg.getBoundingClientRect().right, 10.5 * scale];
    }));
  assert.ok(drawings.length > 0);
  for (const [right, letters] of drawings) assert.ok(right <= 390 && letters >= 9.5, `ends at ${right}, letters of ${letters}`);
});

test('marks of decisions are off where they would hide what ran', { skip }, async (t) => {
  const work = scratch(t);
  work.run('compare -m 2s1n2l4c1t -w schbench:-m2,-t8,-r1 -s eevdf,ule --trials 1 --out run');
  const { page } = await open(await browser(t), work.join('run/report.html'));
  const told = await page.$$eval('.view[data-view="timeline"] h3 small', (found) => found.map((heading) => heading.textContent));
  assert.ok(told.some((text) => /[0-9]k decisions/.test(text)), told.join('\n'));
  assert.equal(await page.getByLabel('decisions').isChecked(), false);
});

test('names of schedulers keep what tells them apart, without directories', { skip }, async (t) => {
  const work = scratch(t);
  work.run(`compare -m ${MACHINE} -w spin:-n4,-p0,-u5ms,-d20ms -s eevdf:base_slice_ns=3000000,eevdf:base_slice_ns=300000 --trials 8 --out run`);
  const { page } = await open(await browser(t), work.join('run/report.html'), { width: 1400 });
  assert.match(await page.textContent('h1'), /=300000: .*=3000000$/);
  const cut = await page.$$eval('#time-0 figure .drawing.wide text', (found) =>
    found.filter((text) => text.getBBox().x < 0).map((text) => text.textContent));
  assert.deepEqual(cut, [], 'no name begins outside of its drawing');
  const names = await page.$$eval('figure[data-figure="task-time"] .drawing.wide text.b', (found) => found.map((text) => text.textContent));
  assert.deepEqual(names.map((name) => name.split('=')[1]), ['3000000', '300000']);
});

test('few tasks are rows in the colours of the LLCs where they ran, and a click on a migration opens its decision', { skip }, async (t) => {
  const work = scratch(t);
  work.run(`compare -m ${MACHINE} -w spin:-n6,-p0,-u5ms,-d60ms -s cfs,rr --trials 2 --out run`);
  const { page, faults } = await open(await browser(t), work.join('run/report.html'));
  const view = page.locator('.view[data-view="timeline"]');
  await view.scrollIntoViewIfNeeded();
  assert.equal(await view.getByLabel('Rows').inputValue(), 'task');
  assert.equal(await view.getByLabel('Colour').inputValue(), 'llc');
  await view.getByLabel('migrations').check();
  const canvas = view.locator('canvas').first();
  const box = await canvas.boundingBox();
  // All but one of the six leave the first CPU after 5 ms: somewhere in each row is a migration.
  let told = '';
  for (let x = 90; x < box.width && !told.includes('Migration of'); x += 5) {
    await page.mouse.click(box.x + x, box.y + 22);
    told = await view.locator('.detail').textContent();
  }
  assert.match(told, /^cfs: Migration of spin-1 from cpu0 to cpu\d+ at [0-9.]+ ms \((same|another) /);
  assert.match(told, /\nwarmcore explain run --scheduler cfs --task spin-1 --at \d+ns/);
  assert.match(told, /\nDecision: (balance|active|affinity|wakeup|fork|steal|numa): \w+/);
  assert.deepEqual(faults, []);
});

test('the table of a comparison fits smaller screens, so that no number is cut from its unit', { skip }, async (t) => {
  const work = scratch(t);
  work.run('compare -m 2s1n2l2c1t -w hackbench:-T,-p,-f2,-g3,-l60+periodic:-n2,-r200us,-s2ms,-d40ms -s eevdf,cfs:wakeup_preemption=0,rr --trials 9 --out run');
  for (const width of [1440, 1280, 1200, 1024, 800]) {
    const { page } = await open(await browser(t), work.join('run/report.html'), { width });
    const [wide, room] = await page.$eval('table[id^="verdict-table"]', (table) => [table.parentElement.scrollWidth, table.parentElement.clientWidth]);
    assert.ok(wide <= room, `${wide} of ${room} at ${width}`);
  }
});

test('drawings beside each other begin at one height, whatever their titles', { skip }, async (t) => {
  const work = scratch(t);
  const long = 'eevdf:base_slice_ns=3000000,migration_cost_ns=400000,nr_migrate=16';
  work.run(`compare -m ${MACHINE} -w spin:-n8,-p0,-u5ms,-d20ms -s cfs,${long} --trials 1 --out run`);
  const { page } = await open(await browser(t), work.join('run/report.html'), { width: 1280 });
  await unfold(page);
  const tops = await page.$$eval('figure[data-figure^="threads-per-cpu"]', (figures) =>
    figures.map((figure) => [figure.querySelector('.title').getBoundingClientRect().height, figure.querySelector('svg').getBoundingClientRect().top]));
  assert.equal(tops.length, 2);
  assert.ok(tops[1][0] > tops[0][0] + 10, `one title wraps: ${JSON.stringify(tops)}`);
  assert.ok(Math.abs(tops[0][1] - tops[1][1]) < 1, JSON.stringify(tops));
});

test('two runs on one page have a timeline each and are compared', { skip }, async (t) => {
  const work = scratch(t);
  work.run(SPIN);
  work.run(SPIN.replace('-d60ms', '-d30ms').replace('--out run', '--out other'));
  work.run('report run other --html both.html');
  const { page, faults } = await open(await browser(t), work.join('both.html'));
  await page.waitForFunction(() => document.querySelectorAll('.view[data-view="timeline"] canvas').length === 4);
  const [one, other] = [work.json('run/verdict.json'), work.json('other/verdict.json')];
  const row = page.locator('#between tbody tr', { hasText: 'cfs' }).first();
  const cells = await row.locator('td.n').evaluateAll((found) => found.map((cell) => Number(cell.dataset.value)));
  const median = (verdict) => verdict.schedulers[0].measures[verdict.primary].summary.median;
  assert.deepEqual(cells.slice(0, 2), [median(one), median(other)]);
  const points = (verdict) => verdict.schedulers[0].measures[verdict.primary].points;
  const ratios = points(other).map((value, trial) => value / points(one)[trial]);
  assert.ok(cells[2] >= Math.min(...ratios) && cells[2] <= Math.max(...ratios), `${cells[2]} among ${ratios}`);
  assert.deepEqual(faults, []);
});

for (const scheme of ['light', 'dark']) {
  test(`rows of LLCs stand out from the page however few CPUs are busy, ${scheme}`, { skip }, async (t) => {
    const work = scratch(t);
    work.run(SPIN);
    const { page } = await open(await browser(t), work.join('run/report.html'), { scheme });
    await showAll(page);
    await page.getByLabel('Rows').first().selectOption('llc');
    await page.waitForTimeout(300);
    // What is inside the plot and in a colour, neither the ground nor a grey of lines and letters.
    const contrasts = await page.$$eval('canvas[data-scheduler]', ([canvas]) => {
      const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
      const part = (value) => (value / 255 <= 0.03928 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4);
      const luminance = ([r, g, b]) => 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b) + 0.05;
      const ground = luminance(getComputedStyle(document.body).backgroundColor.match(/\d+/g).map(Number));
      const times = new Map();
      for (let i = 0; i < data.length; i += 4) {
        const colour = [data[i], data[i + 1], data[i + 2]];
        if (Math.max(...colour) - Math.min(...colour) >= 60) times.set(colour.join(), (times.get(colour.join()) ?? 0) + 1);
      }
      // Letters and slanted lines have pixels of colours in between, a few of each.
      const marks = [...times].filter(([, count]) => count > 50).map(([colour]) => luminance(colour.split(',').map(Number)));
      return marks.map((mark) => Math.max(mark, ground) / Math.min(mark, ground));
    });
    assert.ok(contrasts.length > 0 && Math.min(...contrasts) >= 3, contrasts.join());
  });

  test(`axe finds nothing wrong with a lesson and with two runs on a small screen, ${scheme}`, { skip }, async (t) => {
    const work = scratch(t);
    work.run(SPIN);
    work.run('report run run --html two.html');
    work.run('compare -m 1s1n1l1c1t -w lesson/three-tasks -s rr,eevdf --trials 1 --out lesson');
    work.run('report lesson --lesson lesson.html');
    const instance = await browser(t);
    for (const name of ['two.html', 'lesson.html']) {
      const context = await instance.newContext({ viewport: { width: 390, height: 844 }, colorScheme: scheme, reducedMotion: 'reduce' });
      const page = await context.newPage();
      await page.goto(`file://${work.join(name)}`);
      await page.evaluate(readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8'));
      const results = await page.evaluate(() => globalThis.axe.run({ runOnly: ['wcag2a', 'wcag2aa', 'best-practice'] }));
      const found = results.violations.map(({ id, help, nodes }) => `${name}: ${id}: ${help}: ${nodes.map((node) => node.target.join(' ')).slice(0, 3).join(', ')}`);
      assert.deepEqual(found, []);
      await context.close();
    }
  });

  test(`axe finds nothing wrong with contrast, names and keyboard use, ${scheme}`, { skip }, async (t) => {
    const work = scratch(t);
    work.run(SPIN);
    const { page } = await open(await browser(t), work.join('run/report.html'), { scheme });
    await unfold(page);
    // The page's own policy keeps other scripts out; the check is put in past it.
    await page.evaluate(readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8'));
    const results = await page.evaluate(() => globalThis.axe.run({ runOnly: ['wcag2a', 'wcag2aa', 'best-practice'] }));
    const found = results.violations.map(({ id, help, nodes }) => `${id}: ${help}: ${nodes.map((node) => node.target.join(' ')).slice(0, 3).join(', ')}`);
    assert.deepEqual(found, []);
  });
}

/** Share of pixels that differ clearly; images of different size differ wholly. */
async function difference(page, a, b) {
  return page.evaluate(
    async ([first, second]) => {
      const load = async (data) => createImageBitmap(await (await fetch(`data:image/png;base64,${data}`)).blob());
      const [one, other] = await Promise.all([load(first), load(second)]);
      if (one.width !== other.width || Math.abs(one.height - other.height) > 4) return 1;
      const pixels = (image) => {
        const canvas = new OffscreenCanvas(one.width, Math.min(one.height, other.height));
        const context = canvas.getContext('2d');
        context.drawImage(image, 0, 0);
        return context.getImageData(0, 0, canvas.width, canvas.height).data;
      };
      const [left, right] = [pixels(one), pixels(other)];
      let different = 0;
      for (let i = 0; i < left.length; i += 4) {
        if (Math.max(...[0, 1, 2].map((c) => Math.abs(left[i + c] - right[i + c]))) > 64) different++;
      }
      return different / (left.length / 4);
    },
    [a.toString('base64'), b.toString('base64')],
  );
}

// Fonts and small changes of layout differ by a few per cent of the pixels; a section that is gone or empty by much more.
const TOLERANCE = 0.06;

for (const [width, scheme] of [[1280, 'light'], [1280, 'dark'], [1920, 'light']]) {
  test(`the page looks as it did, ${width} wide, ${scheme}`, { skip }, async (t) => {
    const work = scratch(t);
    // One scheduler whose behaviour is fixed by its teaching purpose: the images follow the page, not the models.
    work.run(`compare -m ${MACHINE} -w spin:-n24,-p0,-u5ms,-d60ms,--profile=mysql-select -s rr,rr:quantum_ns=2000000 --trials 8 --out run`);
    const instance = await browser(t);
    const { page } = await open(instance, work.join('run/report.html'), { width, scheme });
    // The bar at the top would lie over whatever it scrolled past.
    await page.evaluate(() => (document.querySelector('.top').style.position = 'static'));
    await unfold(page);
    const blank = await (await instance.newContext()).newPage();
    for (const section of ['verdict-0', 'time-0', 'timeline-0', 'placement-0', 'machine-0']) {
      const golden = new URL(`golden/${section}-${width}-${scheme}.png`, import.meta.url);
      await page.locator(`#${section}`).scrollIntoViewIfNeeded();
      // Views that look at every slice wait until the page rests.
      await page.waitForTimeout(500);
      const shot = await page.locator(`#${section}`).screenshot();
      if (process.env.UPDATE_GOLDEN || !existsSync(golden)) {
        assert.ok(process.env.UPDATE_GOLDEN, `${golden.pathname} is missing; make it with UPDATE_GOLDEN=1`);
        mkdirSync(new URL('golden/', import.meta.url), { recursive: true });
        writeFileSync(golden, shot);
        continue;
      }
      const share = await difference(blank, readFileSync(golden), shot);
      assert.ok(share < TOLERANCE, `${section} differs in ${(share * 100).toFixed(1)} % of its pixels`);
    }
  });
}
