// Builds built/report.js and built/report.css from src/. With --check it writes nothing and fails if they differ.
import { readFileSync, writeFileSync } from 'node:fs';
import { build } from 'esbuild';

const here = (path) => new URL(path, import.meta.url);
const result = await build({
  absWorkingDir: new URL('.', import.meta.url).pathname,
  entryPoints: { report: 'src/report.ts', style: 'src/report.css' },
  bundle: true,
  charset: 'utf8',
  format: 'iife',
  legalComments: 'none',
  minify: true,
  outdir: 'built',
  target: 'es2022',
  write: false,
});

let stale = false;
for (const { path, text } of result.outputFiles) {
  const name = path.endsWith('.css') ? 'report.css' : 'report.js';
  // The script stands inside a <script> element, which nothing in it may end.
  if (/<\/(script|style)|<!--/i.test(text)) throw new Error(`${name} holds what would end its element`);
  const file = here(`built/${name}`);
  if (process.argv.includes('--check')) {
    const old = readFileSync(file, 'utf8');
    if (old !== text) {
      console.error(`${name} is not what src/ builds: run npm run build in web/`);
      stale = true;
    }
  } else {
    writeFileSync(file, text);
    console.log(`built/${name}: ${text.length} bytes`);
  }
}
process.exitCode = stale ? 1 : 0;
