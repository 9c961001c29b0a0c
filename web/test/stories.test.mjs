// The stories of crates/cli/tests/stories.rs as their users see the page. Skipped, and said so, where there is no Chromium.
import assert from 'node:assert/strict';
import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { test } from 'node:test';
import { browser, open, scratch, skip } from './page.mjs';

const COUNTERS = `name = "service"
[[point]]
capacity = "32KiB"
ways = 8
mpki = 22.0
[[point]]
capacity = "1MiB"
ways = 8
mpki = 9.0
[[point]]
capacity = "32MiB"
ways = 16
mpki = 2.5
`;

test('counters of a service end as an answer, a reason and a limitation on one screen', { skip }, async (t) => {
  const work = scratch(t);
  writeFileSync(work.join('counters.toml'), COUNTERS);
  const tasks = { worker: { instance: 6, loop: 40, run: 500, sleep: 500 } };
  writeFileSync(work.join('service.json'), JSON.stringify({ tasks, warmcore: { tasks: { worker: { profile: 'service' } } } }));
  work.run('workload fit counters.toml --out service.toml');
  work.run('compare -m genoa96 -w service.json --profiles service.toml -s eevdf,cache-aware --trials 8 --out run');
  const { page, faults } = await open(await browser(t), work.join('run/report.html'), { width: 1400, height: 900 });
  const verdict = work.json('run/verdict.json');
  assert.equal(await page.textContent('.answer'), verdict.verdict.sentence);
  assert.match(await page.textContent('h1'), /cache-aware/);
  const bottom = async (selector) => {
    const box = await page.locator(selector).first().boundingBox();
    return box.y + box.height;
  };
  for (const selector of ['h1', '.answer', '.limits', '#verdict-table-0']) assert.ok((await bottom(selector)) < 900, `${selector} is on the first screen`);
  assert.ok(await page.locator('figure[data-figure="task-time"] rect title', { hasText: 'memory of the own node' }).count() > 0);
  assert.deepEqual(faults, []);
});

/** Files of /sys of a computer with two LLCs of two cores. */
function snapshot(work) {
  const write = (name, text) => {
    const path = work.join(`server/${name}`);
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, `${text}\n`);
  };
  write('proc/cpuinfo', 'processor : 0\nmodel name : AMD EPYC 9654 96-Core Processor');
  for (const list of ['online', 'possible', 'present']) write(`sys/devices/system/cpu/${list}`, '0-3');
  for (let cpu = 0; cpu < 4; cpu++) {
    const of = (name, text) => write(`sys/devices/system/cpu/cpu${cpu}/${name}`, text);
    of('topology/core_id', cpu);
    of('topology/physical_package_id', 0);
    of('topology/core_cpus_list', cpu);
    of('topology/thread_siblings_list', cpu);
    const caches = [[1, 'Data', '32K', 8, cpu], [2, 'Unified', '1024K', 8, cpu], [3, 'Unified', '32768K', 16, cpu < 2 ? '0-1' : '2-3']];
    caches.forEach(([level, type, size, ways, shared], index) => {
      const values = { level, type, size, ways_of_associativity: ways, coherency_line_size: 64, shared_cpu_list: shared };
      for (const [name, value] of Object.entries(values)) of(`cache/index${index}/${name}`, value);
    });
  }
  write('sys/devices/system/node/online', 0);
  write('sys/devices/system/node/node0/cpulist', '0-3');
  write('sys/devices/system/node/node0/distance', 10);
  write('sys/devices/system/node/node0/meminfo', 'Node 0 MemTotal: 16777216 kB');
}

test('a copied /sys tree ends as a map of that machine and a table of the schedulers on it', { skip }, async (t) => {
  const work = scratch(t);
  snapshot(work);
  work.run('compare -m server -w hackbench:-T,-p,-f2,-g2,-l30 -s eevdf,eevdf:base_slice_ns=400000,ule --trials 8 --out run');
  const { page, faults } = await open(await browser(t), work.join('run/report.html'));
  const rows = await page.$$eval('#verdict-table-0 tbody th', (cells) => cells.map((cell) => cell.textContent));
  assert.deepEqual(rows, ['eevdf', 'eevdf:base_slice_ns=400000', 'ule']);
  await page.locator('#machine-0').scrollIntoViewIfNeeded();
  assert.match(await page.textContent('#machine-0 .note'), /1 socket, 1 NUMA node, 2 LLCs, 4 cores, 4 CPUs/);
  assert.equal(await page.locator('#machine-0 figure[data-figure^="machine-"]').count(), 3, 'a map for each scheduler');
  assert.doesNotMatch(await page.textContent('.limits'), /generic/);
  assert.deepEqual(faults, []);
});

test('a mended rt-app file ends at the migration that a click opens, with the command that explains it', { skip }, async (t) => {
  const work = scratch(t);
  const write = (sleep) => writeFileSync(work.join('mine.json'), JSON.stringify({ tasks: { worker: { instance: 4, loop: 40, run: 800, [sleep]: 1200 }, batch: { instance: 2, loop: 20, run: 3000 } } }));
  const words = 'compare -m 2s1n1l2c1t -w mine.json --strict -s eevdf,cfs --trials 8 --out run';
  write('slepp');
  assert.throws(() => work.run(words), (error) => /did you mean "sleep"/.test(String(error.stderr)));
  write('sleep');
  work.run(words);
  const { page, faults } = await open(await browser(t), work.join('run/report.html'));
  const view = page.locator('.view[data-view="timeline"]');
  await view.scrollIntoViewIfNeeded();
  await view.getByLabel('migrations').check();
  const canvas = view.locator('canvas').first();
  const box = await canvas.boundingBox();
  let told = '';
  for (let y = 8; y < box.height && !told.includes('Migration of'); y += 14) {
    for (let x = 90; x < box.width && !told.includes('Migration of'); x += 5) {
      await page.mouse.click(box.x + x, box.y + y);
      told = await view.locator('.detail').textContent();
    }
  }
  const command = /\nwarmcore (explain run [^\n]*)/.exec(told)?.[1];
  assert.ok(command, told);
  const [, task, from, to] = /Migration of (\S+) from (cpu\d+) to (cpu\d+)/.exec(told);
  assert.match(work.run(`${command} --count 1`), new RegExp(`${task}/\\d+ moved from ${from} .* to ${to} `));
  assert.deepEqual(faults, []);
});

test('three tasks end as a page for a class', { skip }, async (t) => {
  const work = scratch(t);
  const tasks = { mother: { loop: 30, run: 2000 }, child: { loop: 30, run: 2000 }, cat: { loop: 10, run: 500, sleep: 6000 } };
  writeFileSync(work.join('three.json'), JSON.stringify({ tasks }));
  work.run('compare -m 1s1n1l1c1t -w three.json -s eevdf,cfs --trials 1 --keep run --out run');
  work.run('report run --lesson lesson.html');
  const made = await browser(t);
  const page = await (await made.newContext({ viewport: { width: 1400, height: 900 } })).newPage();
  const faults = [];
  page.on('pageerror', (error) => faults.push(error.message));
  await page.goto(`file://${work.join('lesson.html')}`);
  const text = await page.textContent('body');
  for (const name of ['mother', 'child', 'cat', 'eevdf', 'cfs']) assert.ok(text.includes(name), name);
  assert.match(await page.textContent('h1'), /waits up to .* under .*, .* under |No scheduler lets a task wait much longer/);
  const charts = await page.$$eval('svg', (found) => found.map((svg) => svg.getBoundingClientRect().height));
  assert.ok(charts.length === 2 && charts.every((height) => height > 200), charts.join());
  await isForAClass(page);
  assert.deepEqual(faults, []);
});

/** Everything that is not folded lies on one screen, in sizes for a projector, on one time axis. */
async function isForAClass(page) {
  const bottoms = await page.$$eval('svg, summary, h2', (found) => found.map((element) => element.getBoundingClientRect().bottom));
  assert.ok(Math.max(...bottoms) <= 900, `${Math.max(...bottoms)} pixels high`);
  const sizes = await page.$$eval('main h1, main h2, main p, main summary, main text', (found) =>
    found.map((element) => {
      const scale = element instanceof SVGTextElement ? element.ownerSVGElement.getBoundingClientRect().width / element.ownerSVGElement.viewBox.baseVal.width : 1;
      return parseFloat(getComputedStyle(element).fontSize) * scale;
    }));
  assert.ok(Math.min(...sizes) >= 23.5, `${Math.min(...sizes)} pixels`);
  // Marks of the time axis are the lines that stand upright.
  const axes = await page.$$eval('.drawing svg', (found) =>
    found.map((svg) => [...svg.querySelectorAll('line.grid')].filter((line) => line.getAttribute('x1') === line.getAttribute('x2')).map((line) => line.getAttribute('x1')).join()));
  assert.ok(new Set(axes).size <= 1, 'the charts have one time axis');
}

test('a lesson begins with the answer, and can be read on a small screen', { skip }, async (t) => {
  const work = scratch(t);
  work.run('compare -m 1s1n1l1c1t -w lesson/three-tasks -s rr,eevdf --trials 1 --keep run --out run');
  work.run('report run --lesson lesson.html');
  const made = await browser(t);
  const page = await (await made.newContext({ viewport: { width: 390, height: 844 } })).newPage();
  await page.goto(`file://${work.join('lesson.html')}`);
  assert.match(await page.textContent('h1'), /^editor waits up to 19\.9 ms under rr, up to 1\.\d+ ms under eevdf$/);
  const charts = await page.$$eval('.drawing svg', (found) => found.map((svg) => [svg.getBoundingClientRect(), svg.viewBox.baseVal].map((box) => [box.width, box.height])));
  for (const [[width, height], [wide, high]] of charts) {
    assert.ok(Math.abs(width / height / (wide / high) - 1) < 0.05, 'nothing empty above and below a chart');
    assert.ok((24 * width) / wide >= 12, `letters of ${(24 * width) / wide} pixels`);
  }
  assert.ok((await page.evaluate(() => document.documentElement.scrollWidth)) <= 390);
});

test('a lesson of three schedulers fits a small screen without scrolling, and tells who starves', { skip }, async (t) => {
  const work = scratch(t);
  work.run('compare -m 1s1n1l1c1t -w lesson/three-tasks -s rr,fifo,eevdf --max-time 90ms --trials 1 --out run');
  work.run('report run --lesson lesson.html');
  const made = await browser(t);
  const page = await (await made.newContext({ viewport: { width: 390, height: 844 } })).newPage();
  await page.goto(`file://${work.join('lesson.html')}`);
  const charts = await page.$$eval('.drawing svg', (found) => found.map((svg) => [svg.getBoundingClientRect().width, svg.viewBox.baseVal.width]));
  assert.equal(charts.length, 3);
  for (const [width, wide] of charts) assert.ok(width <= 390 && (24 * width) / wide >= 12, `${width} of ${wide} pixels`);
  // The mark at the end of the axis is whole.
  const cut = await page.$$eval('.drawing svg', (found) => found.map((svg) => {
    const right = svg.getBoundingClientRect().right;
    return Math.max(...[...svg.querySelectorAll('text')].map((text) => text.getBoundingClientRect().right)) - right;
  }));
  assert.ok(Math.max(...cut) <= 0.5, cut.join());
  await page.setViewportSize({ width: 1400, height: 900 });
  assert.match(await page.textContent('h1'), /^\S+ waits at least \S+ ms \(not over\) under fifo, /);
  await isForAClass(page);
});

test('a lesson on two LLCs shows tasks in their colours, and their data following them', { skip }, async (t) => {
  const work = scratch(t);
  const tasks = { reader: { loop: 40, run: 2000, sleep: 500 }, writer: { loop: 40, run: 1500, sleep: 700 }, batch: { instance: 3, loop: 40, run: 3000 } };
  const profiles = Object.fromEntries(Object.keys(tasks).map((name) => [name, { profile: 'mysql-select' }]));
  writeFileSync(work.join('llcs.json'), JSON.stringify({ tasks, warmcore: { tasks: profiles } }));
  work.run('compare -m 1s1n2l2c1t -w llcs.json -s eevdf,cfs --trials 1 --keep run --out run');
  work.run('report run --lesson lesson.html');
  const made = await browser(t);
  const page = await (await made.newContext({ viewport: { width: 1400, height: 900 } })).newPage();
  await page.goto(`file://${work.join('lesson.html')}`);
  await isForAClass(page);
  const colours = await page.$$eval('.drawing svg', ([svg]) => [...new Set([...svg.querySelectorAll('rect[fill]')].map((bar) => bar.getAttribute('fill')))]);
  assert.equal(colours.length, 2, 'one for each LLC');
  assert.ok((await page.locator('line.moved').count()) > 0, 'tasks that run in another LLC than before are marked');
  assert.match(await page.textContent('.drawing svg'), /cache lines\/ms from elsewhere/);
});
