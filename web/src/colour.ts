// The colours of crates/report/src/colour.rs, as 32-bit pixels and as style texts.

type Rgb = readonly [number, number, number];

const HUES: readonly Rgb[] = [
  [0x33, 0x8f, 0xd0],
  [0xe0, 0x8a, 0x1e],
  [0x2a, 0xa3, 0x7f],
  [0xc9, 0x6b, 0xa8],
  [0x8c, 0x7a, 0xd0],
  [0xb0, 0x9a, 0x1a],
  [0xd0, 0x5a, 0x3c],
  [0x6f, 0x9a, 0x5a],
];

const SCALE: readonly Rgb[] = [
  [0xf2, 0xe8, 0xb8],
  [0xd8, 0xc3, 0x6a],
  [0xa9, 0xa0, 0x74],
  [0x7a, 0x7c, 0x7d],
  [0x44, 0x5a, 0x75],
  [0x0b, 0x2f, 0x5b],
];

function mix(from: Rgb, to: Rgb, share: number): Rgb {
  const part = (i: number): number => Math.round(from[i] + (to[i] - from[i]) * share);
  return [part(0), part(1), part(2)];
}

/** The colour of group `index`: one hue each, then the same hues lighter, then darker. */
export function group(index: number): Rgb {
  const hue = HUES[index % HUES.length];
  const round = Math.floor(index / HUES.length) % 3;
  return round === 0 ? hue : round === 1 ? mix(hue, [255, 255, 255], 0.42) : mix(hue, [0, 0, 0], 0.38);
}

/** The colour for a share of the largest value. */
export function magnitude(share: number): Rgb {
  const position = Math.min(1, Math.max(0, share)) * (SCALE.length - 1);
  const below = Math.min(Math.floor(position), SCALE.length - 2);
  return mix(SCALE[below], SCALE[below + 1], position - below);
}

/** For `fillStyle`. */
export function css([r, g, b]: Rgb): string {
  return `rgb(${r} ${g} ${b})`;
}

/** A pixel of an `ImageData` seen as 32-bit numbers; alpha 0..255. */
export function pixel([r, g, b]: Rgb, alpha = 255): number {
  return ((alpha << 24) | (b << 16) | (g << 8) | r) >>> 0;
}
