// Each kind of page on a small screen and on paper. Skipped, and said so, where there is no Chromium.
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { test } from 'node:test';
import { browser, open, scratch, skip } from './page.mjs';

const SPIN = 'spin:-n24,-p0,-u5ms,-d60ms,--profile=mysql-select';
const LONG = 'eevdf:base_slice_ns=3000000,migration_cost_ns=400000,nr_migrate=16';

/** A study of three sizes, with texts that have no place to break. */
const STUDY = `schema = "warmcore-study-form-1"
title = "Threads_that_share_data_and_outgrow_an_LLC_of_four_cores"
question = "How much is gained?"
source = "https://example.org/${'a-long-way/'.repeat(12)}letter.html#a-part-of-it"
[[vary]]
name = "threads"
values = [2, 3, 4]
[[cell]]
name = "sizes"
machine = "2s1n1l4c1t@gnr72"
workload = "verilator:-t{threads},-C60"
schedulers = ["eevdf", "cache-aware", "${LONG}"]
trials = 8
[[expect]]
name = "{threads} threads, time of cache-aware over eevdf, which has no idea of what they share"
each = ["threads"]
figure = "elapsed_ns[sizes, cache-aware] / elapsed_ns[sizes, eevdf]"
published = 0.6
band = [0.2, 0.9]
reason = "a wide band"
`;

/** How a page of each kind is made; returns its name, or why it cannot be made here. */
const KINDS = {
  comparison: (work) => {
    work.run(`compare -m 2s1n2l4c1t -w ${SPIN} -s cfs,${LONG} --trials 8 --out run`);
    return 'run/report.html';
  },
  recording: (work) => {
    try {
      work.run('record -o run -- ls');
    } catch (error) {
      return { skipped: String(error.stderr).split('\n')[0] };
    }
    return 'run/report.html';
  },
  lesson: (work) => {
    work.run('compare -m 1s1n1l1c1t -w lesson/three-tasks -s rr,eevdf --trials 1 --keep run --out run');
    work.run('report run --lesson lesson.html');
    return 'lesson.html';
  },
  "scheduler developer's page": (work) => {
    work.run('compare -m 2s1n2l4c1t -w hackbench:-T,-p,-f4,-g2,-l20 -s eevdf,scx-native --trials 2 --trace full:1ms --out run');
    return 'run/report.html';
  },
  '384 CPUs': (work) => {
    work.run('compare -m turin-dense -w hackbench:-T,-p,-f10,-g10,-l5 -s eevdf,cache-aware --trials 1 --out run');
    return 'run/report.html';
  },
  study: (work) => {
    writeFileSync(work.join('study.toml'), STUDY);
    try {
      work.run('study run study.toml --out kept');
    } catch (error) {
      // A figure is outside of its band, which the page shows.
      assert.equal(error.status, 3, String(error.stderr));
    }
    return 'kept/study.html';
  },
  'two runs': (work) => {
    for (const out of ['run', 'other']) work.run(`compare -m 2s1n2l4c1t -w ${SPIN} -s cfs,${LONG} --trials 2 --out ${out}`);
    work.run('report run other --html both.html');
    return 'both.html';
  },
};

/** Opens a page, with what its script adds if it has one. */
async function shown(instance, file, width) {
  if (/report|both/.test(file)) return (await open(instance, file, { width, height: 844 })).page;
  const page = await (await instance.newContext({ viewport: { width, height: 844 } })).newPage();
  await page.goto(`file://${file}`);
  return page;
}

/** Opens everything and shows it once, so that what waits for the screen is drawn. */
async function openAll(page) {
  await page.evaluate(async () => {
    document.querySelectorAll('details').forEach((details) => (details.open = true));
    for (const section of document.querySelectorAll('section')) {
      section.scrollIntoView();
      await new Promise((done) => setTimeout(done, 250));
    }
  });
}

for (const [kind, make] of Object.entries(KINDS)) {
  test(`a page never scrolls sideways on a small screen, closed or open: ${kind}`, { skip }, async (t) => {
    const work = scratch(t);
    const made = make(work);
    if (made.skipped) return t.skip(made.skipped);
    const page = await shown(await browser(t), work.join(made), 390);
    const fits = async (state) => {
      const [wide, beyond] = await page.evaluate(() => {
        const scrolls = (element) => element && (getComputedStyle(element).overflowX !== 'visible' || scrolls(element.parentElement));
        const all = [...document.querySelectorAll('body *')].filter((element) => element.getBoundingClientRect().left + element.scrollWidth > innerWidth + 0.5);
        const named = all.filter((element) => !scrolls(element)).map((element) => `${element.tagName} ${element.getAttribute('class') ?? ''} ${element.textContent.slice(0, 30)}`);
        return [document.documentElement.scrollWidth <= innerWidth, named.slice(-3)];
      });
      assert.ok(wide, `${state}: ${beyond.join(', ')}`);
    };
    await fits('closed');
    await openAll(page);
    await fits('open');
  });

  test(`on paper what answers is open, and a line says what is not: ${kind}`, { skip }, async (t) => {
    const work = scratch(t);
    const made = make(work);
    if (made.skipped) return t.skip(made.skipped);
    const page = await shown(await browser(t), work.join(made), 718);
    await page.evaluate(() => dispatchEvent(new Event('beforeprint')));
    await page.emulateMedia({ media: 'print' });
    const found = await page.evaluate(() => {
      const visible = (element) => element.checkVisibility({ contentVisibilityAuto: true }) && element.getBoundingClientRect().height > 0;
      const said = [...document.querySelectorAll('details:not([open])')].filter(visible).map((details) => {
        const summary = details.querySelector('summary');
        const inside = [...details.children].filter((child) => child !== summary).some(visible);
        return { words: summary.textContent, inside, line: getComputedStyle(summary, '::after').content.includes('not printed') };
      });
      // Headings are those of what follows until the next one of their section.
      const bare = [...document.querySelectorAll('h2, h3, h4')].filter(visible).filter((heading) => {
        const box = heading.closest('section, figure, .pane, .set');
        const others = [...box.querySelectorAll('*')].filter((other) => heading.compareDocumentPosition(other) & Node.DOCUMENT_POSITION_FOLLOWING);
        return !others.some((other) => !heading.contains(other) && visible(other));
      });
      const headless = [...document.querySelectorAll('section')].filter(visible).filter((section) => {
        const heading = section.querySelector('h1, h2');
        return !heading || !visible(heading);
      });
      return { said, bare: bare.map((heading) => heading.textContent), headless: headless.map((section) => section.id) };
    });
    for (const { words, inside, line } of found.said) assert.ok(inside !== line, `${words}: ${inside ? 'printed' : 'not printed'}, ${line ? 'with' : 'without'} a line`);
    assert.deepEqual([found.bare, found.headless], [[], []], 'headings without anything, and parts without a heading');
    if (kind === 'comparison') {
      const words = (printed) => found.said.filter((details) => details.inside === printed).map((details) => details.words);
      for (const title of ['Trials', 'Measures', 'About this run']) assert.ok(words(true).some((text) => text.startsWith(title)), `${title} is printed`);
      for (const title of ['Latency', 'Over time', 'Placement']) assert.ok(words(false).some((text) => text.startsWith(title)), `${title} is not`);
    }
  });
}

test('on paper a figure of a study does not pull those behind it to its page', { skip }, async (t) => {
  const work = scratch(t);
  const page = await shown(await browser(t), work.join(KINDS.study(work)), 718);
  await page.emulateMedia({ media: 'print' });
  const after = await page.$$eval('figcaption', (found) => found.map((caption) => getComputedStyle(caption).breakAfter));
  assert.ok(after.length > 1 && after.every((rule) => rule === 'auto'), after.join());
});

test('a key names only places where something ran, and causes that can be seen', { skip }, async (t) => {
  const work = scratch(t);
  work.run('compare -m 2s1n2l4c1t -w spin:-n2,-p0,-u5ms,-d60ms,--profile=mysql-select -s cfs,rr --trials 2 --out run');
  const { page } = await open(await browser(t), work.join('run/report.html'));
  const view = page.locator('.view[data-view="timeline"]');
  await view.scrollIntoViewIfNeeded();
  const key = await view.locator('.legend span').allTextContents();
  assert.ok(key.length > 0 && key.length < 4, `two tasks on four LLCs: ${key.join()}`);
  for (const [selector, unit] of [['task-time', 'wide'], ['task-time', 'narrow']]) {
    const [entries, widths] = await page.$eval(`figure[data-figure="${selector}"] .drawing.${unit} svg`, (svg) => {
      const rects = [...svg.querySelectorAll('rect')];
      const bars = rects.filter((rect) => rect.querySelector('title'));
      const swatches = rects.filter((rect) => !rect.querySelector('title')).map((rect) => rect.getAttribute('class'));
      const plot = Math.max(...bars.map((bar) => Number(bar.getAttribute('x')) + Number(bar.getAttribute('width')))) - Math.min(...bars.map((bar) => Number(bar.getAttribute('x'))));
      const widest = (name) => Math.max(...bars.filter((bar) => bar.getAttribute('class') === name).map((bar) => Number(bar.getAttribute('width')) / plot));
      return [swatches, swatches.map((name) => [name, widest(name)])];
    });
    assert.equal(new Set(entries).size, entries.length);
    for (const [name, widest] of widths) assert.ok(name === 'hollow' || widest >= 0.0099, `${name} is ${widest} of the longest bar`);
  }
});
