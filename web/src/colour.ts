// The report's colours as 32-bit pixels and as style texts. Which they are says crates/report/src/colour.rs; they come with the
// page.

type Rgb = readonly [number, number, number];

/** Hues of groups, shares of white and black in the rounds after the first, anchors of the scale of magnitude. */
export interface Palette {
  hues: Rgb[];
  lighter: number;
  darker: number;
  scale: Rgb[];
}

let palette: Palette = { hues: [[128, 128, 128]], lighter: 0, darker: 0, scale: [[255, 255, 255], [0, 0, 0]] };

/** To be called before anything is drawn. */
export function setPalette(colours: Palette): void {
  palette = colours;
}

function mix(from: Rgb, to: Rgb, share: number): Rgb {
  const part = (i: number): number => Math.round(from[i] + (to[i] - from[i]) * share);
  return [part(0), part(1), part(2)];
}

/** The colour of group `index`: one hue each, then the same hues lighter, then darker. */
export function group(index: number): Rgb {
  const { hues, lighter, darker } = palette;
  const hue = hues[index % hues.length];
  const round = Math.floor(index / hues.length) % 3;
  return round === 0 ? hue : round === 1 ? mix(hue, [255, 255, 255], lighter) : mix(hue, [0, 0, 0], darker);
}

/** The colour for a share of the largest value. */
export function magnitude(share: number): Rgb {
  const { scale } = palette;
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
