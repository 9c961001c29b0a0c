// A report in headless Chromium, for the tests: made by the program, opened from file://, watched for anything that would
// leave the machine or go wrong.
import { execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { chromium } from 'playwright-core';

const root = fileURLToPath(new URL('../../', import.meta.url));

/** The program under test. */
export const program = process.env.WARMCORE ?? join(root, 'target/debug/warmcore');

export const chromiumPath = process.env.CHROMIUM ?? '/usr/bin/chromium';

/** Why these tests cannot run here, if they cannot. */
export const skip = !existsSync(chromiumPath)
  ? `no Chromium at ${chromiumPath} (CHROMIUM names another one)`
  : !existsSync(program)
    ? `no program at ${program} (WARMCORE names another one)`
    : false;

/** A directory that is gone after the test, in which the program runs. */
export function scratch(t) {
  const path = mkdtempSync(join(tmpdir(), 'warmcore-page-'));
  t.after(() => rmSync(path, { recursive: true, force: true }));
  return {
    path,
    run: (words) => execFileSync(program, words.split(' '), { cwd: path, stdio: ['ignore', 'pipe', 'pipe'] }).toString(),
    json: (name) => JSON.parse(readFileSync(join(path, name), 'utf8')),
    join: (name) => join(path, name),
  };
}

export async function browser(t) {
  const args = ['--headless', '--no-sandbox', '--disable-gpu', '--disable-background-networking', '--disable-component-update', '--disable-sync', '--no-first-run'];
  const made = await chromium.launch({ executablePath: chromiumPath, args });
  t.after(() => made.close());
  return made;
}

/** Opens all sections that are closed until a reader wants them. */
export async function unfold(page) {
  await page.$$eval('details.closed', (found) => found.forEach((details) => (details.open = true)));
}

/** Opens a page and collects what it must not do. */
export async function open(instance, file, { width = 1280, height = 900, scheme = 'light' } = {}) {
  const context = await instance.newContext({ viewport: { width, height }, colorScheme: scheme, reducedMotion: 'reduce' });
  const page = await context.newPage();
  const faults = [];
  page.on('console', (message) => {
    if (['error', 'warning'].includes(message.type())) faults.push(`console ${message.type()}: ${message.text()}`);
  });
  page.on('pageerror', (error) => faults.push(`exception: ${error.message}`));
  page.on('request', (request) => {
    if (!/^(file|data|blob):/.test(request.url())) faults.push(`request: ${request.url()}`);
  });
  page.on('dialog', (dialog) => {
    faults.push(`dialog: ${dialog.message()}`);
    void dialog.dismiss();
  });
  await page.goto(`file://${file}`);
  await page.waitForSelector('html[data-ready]', { timeout: 60_000 });
  return { page, faults };
}
