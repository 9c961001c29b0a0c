// Numbers as people read them, in the same words as the program's own tables.

function digits(value: number): string {
  const size = Math.abs(value);
  const decimals = size >= 99.95 ? 0 : size >= 9.995 ? 1 : size >= 0.9995 ? 2 : 3;
  const text = value.toFixed(decimals);
  return text.includes('.') ? text.replace(/0+$/, '').replace(/\.$/, '') : text;
}

const UNITS: readonly (readonly [number, string])[] = [
  [1, 'ns'],
  [1e3, 'us'],
  [1e6, 'ms'],
  [1e9, 's'],
];

function unitOf(ns: number): readonly [number, string] {
  const size = Math.abs(ns);
  return UNITS[size < 999.5 ? 0 : size < 999.5e3 ? 1 : size < 999.5e6 ? 2 : 3];
}

/** `1.23 ms`. */
export function duration(ns: number): string {
  const [divisor, unit] = unitOf(ns);
  return `${digits(ns / divisor)} ${unit}`;
}

/** A point in time, with as many digits as tell it from one `resolution` later, in the unit that fits `scale`. */
export function instant(ns: number, resolution: number, scale = Math.max(ns, resolution)): string {
  const [divisor, unit] = unitOf(scale);
  const decimals = Math.max(0, Math.min(9, Math.ceil(Math.log10(divisor / Math.max(1, resolution)))));
  return `${(ns / divisor).toFixed(decimals)} ${unit}`;
}

/** `123`, `1.23k`. */
export function count(value: number): string {
  const size = Math.abs(value);
  if (size < 999.5) return digits(value);
  if (size < 999.5e3) return `${digits(value / 1e3)}k`;
  if (size < 999.5e6) return `${digits(value / 1e6)}M`;
  return `${digits(value / 1e9)}G`;
}

/** `1 slice`, `12 slices`. */
export function many(value: number, what: string): string {
  return `${count(value)} ${what}${value === 1 ? '' : 's'}`;
}

/** `12.3 %`. */
export function percent(share: number): string {
  return `${digits(share * 100)} %`;
}

/** Round values for marks of a time axis. */
export function timeTicks(from: number, to: number, most: number): number[] {
  const raw = (to - from) / Math.max(1, most);
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = Math.max(1, ([1, 2, 5].find((factor) => factor * power >= raw * (1 - 1e-9)) ?? 10) * power);
  const ticks: number[] = [];
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) ticks.push(at);
  return ticks;
}

/** A label of a group that fits: of `application/role ×4` the role stays whole, because groups of one application differ by it. */
export function shortenedGroup(label: string, most: number): string {
  const at = label.lastIndexOf('/');
  if (at < 0) return shortened(label, most);
  const role = label.slice(at + 1);
  const left = most - role.length - 1;
  return left < 3 ? shortened(role, most) : `${shortened(label.slice(0, at), left)}/${role}`;
}

/** A text that fits a number of characters. */
export function shortened(text: string, most: number): string {
  return text.length <= most ? text : `${text.slice(0, most - 1)}…`;
}
