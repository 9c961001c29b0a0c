// Raw data to save: the run's documents, and for each figure its drawing and its numbers.

import { save, unpack } from './data';
import { button, element } from './dom';

export async function installDownloads(): Promise<void> {
  const bytes = await unpack('files');
  const files = bytes ? (JSON.parse(new TextDecoder().decode(bytes)) as [string, string][]) : [];
  const byName = new Map(files);
  document.querySelectorAll<HTMLElement>('.downloads').forEach((box) => {
    const run = box.dataset.run ?? '0';
    for (const name of ['verdict.json', 'trials.csv', 'report.md', 'machine.toml']) {
      const text = byName.get(`${run}/${name}`);
      if (text !== undefined) box.append(button(name, () => save(name, text, 'text/plain;charset=utf-8')));
    }
  });
  document.querySelectorAll<HTMLElement>('figure[data-figure]').forEach((figure) => {
    const run = figure.closest('section')?.id.split('-').pop() ?? '0';
    const name = figure.dataset.figure ?? '';
    const svg = figure.querySelector('svg');
    const actions = element('div', 'actions');
    if (svg) {
      actions.append(named('SVG', name, () => save(`${name}.svg`, standalone(svg), 'image/svg+xml')));
    }
    const csv = byName.get(`${run}/${name}.csv`);
    if (csv !== undefined) actions.append(named('CSV', name, () => save(`${name}.csv`, csv, 'text/csv')));
    (figure.querySelector('figcaption') ?? figure).append(actions);
  });
}

function named(text: string, figure: string, action: () => void): HTMLButtonElement {
  const made = button(text, action);
  made.title = `Save ${figure} as ${text}`;
  return made;
}

/** A drawing of the page with the page's styles in it. */
function standalone(svg: SVGSVGElement): string {
  const copy = svg.cloneNode(true) as SVGSVGElement;
  const classes = ['fill', 'fill-opacity', 'stroke', 'stroke-width', 'stroke-opacity', 'stroke-dasharray', 'font', 'image-rendering', 'display'];
  const from = svg.querySelectorAll('*');
  copy.querySelectorAll<SVGElement>('*').forEach((target, index) => {
    const style = getComputedStyle(from[index]);
    for (const property of classes) target.style.setProperty(property, style.getPropertyValue(property));
  });
  copy.setAttribute('xmlns', 'http://www.w3.org/2000/svg');
  // The page may show a part only, and say the rest once for several drawings.
  const { height } = svg.dataset;
  if (height) {
    copy.setAttribute('viewBox', `0 0 ${svg.viewBox.baseVal.width} ${height}`);
    copy.setAttribute('height', height);
  }
  return `<?xml version="1.0" encoding="UTF-8"?>\n${new XMLSerializer().serializeToString(copy)}`;
}
