// Measures a page in Chromium: size, time until the views are there, time of a redraw of the timeline, time from a click to the end of
// its frame, and of the views that are drawn when the hand rests (whole run, half, later). Prints one JSON document.
//   node test/measure.mjs RUN/report.html
import { statSync } from 'node:fs';
import { resolve } from 'node:path';
import { chromium } from 'playwright-core';
import { chromiumPath } from './page.mjs';

const file = resolve(process.argv[2]);
const instance = await chromium.launch({ executablePath: chromiumPath, args: ['--headless', '--no-sandbox', '--disable-gpu', '--no-first-run'] });
const page = await (await instance.newContext({ viewport: { width: 1920, height: 1080 } })).newPage();
const begin = Date.now();
await page.goto(`file://${file}`);
await page.waitForSelector('html[data-ready]', { timeout: 120_000 });
const wall = Date.now() - begin;
const figures = await page.evaluate(async () => {
  document.querySelectorAll('details.closed').forEach((details) => (details.open = true));
  const view = document.querySelector('.view[data-view="timeline"]');
  view.scrollIntoView();
  const frame = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  await frame();
  const click = (name) => view.querySelector(`button[aria-label="${name}"]`).click();
  const redraws = [];
  const frames = [];
  const draw = async (name) => {
    const begin = performance.now();
    click(name);
    await frame();
    frames.push(performance.now() - begin);
    await frame();
    redraws.push(performance.getEntriesByName('warmcore redraw').at(-1)?.duration ?? NaN);
  };
  for (let i = 0; i < 12; i++) await draw('Zoom in');
  for (let i = 0; i < 6; i++) await draw('Later');
  for (let i = 0; i < 12; i++) await draw('Zoom out');
  const ready = performance.getEntriesByName('warmcore ready').at(-1)?.startTime ?? NaN;
  const lazy = {};
  for (const [name, section] of [['heatmap', 'placement-0'], ['map', 'machine-0']]) {
    document.getElementById(section).scrollIntoView();
    const times = [];
    for (const label of ['Show the whole run', 'Zoom in', 'Later']) {
      click(label);
      await new Promise((done) => setTimeout(done, 700));
      times.push(performance.getEntriesByName(`warmcore ${name}`).at(-1)?.duration ?? NaN);
    }
    lazy[name] = times;
  }
  const slices = [...document.querySelectorAll('.pane h3 small')].map((small) => small.textContent);
  return { ready_ms: ready, redraws_ms: redraws, frames_ms: frames, lazy_ms: lazy, panes: slices };
});
const sorted = [...figures.redraws_ms].sort((a, b) => a - b);
const result = {
  schema: 'warmcore-page-measurement-2',
  chromium: instance.version(),
  file_bytes: statSync(file).size,
  wall_until_ready_ms: wall,
  ready_ms: figures.ready_ms,
  redraw_median_ms: sorted[Math.floor(sorted.length / 2)],
  redraw_largest_ms: sorted.at(-1),
  frame_median_ms: [...figures.frames_ms].sort((a, b) => a - b)[Math.floor(figures.frames_ms.length / 2)],
  frame_largest_ms: Math.max(...figures.frames_ms),
  lazy_ms: figures.lazy_ms,
  redraws_ms: figures.redraws_ms,
  frames_ms: figures.frames_ms,
  panes: figures.panes,
};
console.log(JSON.stringify(result, null, 2));
await instance.close();
