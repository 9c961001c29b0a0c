// The report's colours as 32-bit pixels and as style texts. Which they are says crates/report/src/colour.rs; they come with the
// page.

import { isDark } from './theme';

type Rgb = readonly [number, number, number];

/** Colours of groups, and of what ran beside a run; anchors of the scale of magnitude on light and on dark ground. */
export interface Palette {
  hues: Rgb[];
  beside: Record<string, Rgb>;
  light: Rgb[];
  dark: Rgb[];
}

let palette: Palette = { hues: [[128, 128, 128]], beside: {}, light: [[255, 255, 255], [0, 0, 0]], dark: [[0, 0, 0], [255, 255, 255]] };

/** To be called before anything is drawn. */
export function setPalette(colours: Palette): void {
  palette = colours;
}

function mix(from: Rgb, to: Rgb, share: number): Rgb {
  const part = (i: number): number => Math.round(from[i] + (to[i] - from[i]) * share);
  return [part(0), part(1), part(2)];
}

/** Numbers from here on are those of what ran beside a run: no run has so many groups. */
const BESIDE = 1 << 24;

/** The number of the colour of what ran beside a run, by the first word of its name. */
export function beside(name: string): number {
  return BESIDE + Math.max(0, Object.keys(palette.beside).indexOf(name.split(' ')[0]));
}

/** The colour of group `index`. */
export function group(index: number): Rgb {
  if (index >= BESIDE) return Object.values(palette.beside)[index - BESIDE] ?? palette.hues[0];
  return palette.hues[index % palette.hues.length];
}

/** The colour for a share of the largest value, on the page's ground. */
export function magnitude(share: number): Rgb {
  const scale = isDark() ? palette.dark : palette.light;
  const position = Math.min(1, Math.max(0, share)) * (scale.length - 1);
  const below = Math.min(Math.floor(position), scale.length - 2);
  return mix(scale[below], scale[below + 1], position - below);
}

/** For `fillStyle`. */
export function css([r, g, b]: Rgb): string {
  return `rgb(${r} ${g} ${b})`;
}

/** A pixel of an `ImageData` seen as 32-bit numbers; alpha 0..255. */
export function pixel([r, g, b]: Rgb, alpha = 255): number {
  return ((alpha << 24) | (b << 16) | (g << 8) | r) >>> 0;
}
