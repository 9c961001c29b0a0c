// Small helpers around the document.

/** Width up to which a screen is small, in pixels, as in report.css. */
export const SMALL_SCREEN = 640;

/** A new element with a class and a text. */
export function element<K extends keyof HTMLElementTagNameMap>(
  name: K,
  className = '',
  text = '',
): HTMLElementTagNameMap[K] {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text) made.textContent = text;
  return made;
}

/** A button that does something. */
export function button(text: string, action: () => void): HTMLButtonElement {
  const made = element('button', '', text);
  made.type = 'button';
  made.addEventListener('click', action);
  return made;
}

/** A labelled choice. */
export function choice<T extends string>(
  label: string,
  options: readonly (readonly [T, string])[],
  chosen: T,
  action: (value: T) => void,
): HTMLLabelElement {
  const box = element('label', '', `${label} `);
  const select = element('select');
  for (const [value, text] of options) {
    const option = element('option', '', text);
    option.value = value;
    option.selected = value === chosen;
    select.append(option);
  }
  select.addEventListener('change', () => action(select.value as T));
  box.append(select);
  return box;
}

/** A labelled switch. */
export function toggle(label: string, on: boolean, action: (on: boolean) => void): HTMLLabelElement {
  const box = element('label');
  const input = element('input');
  input.type = 'checkbox';
  input.checked = on;
  input.addEventListener('change', () => action(input.checked));
  box.append(input, label);
  return box;
}

/** The value of a colour of the style sheet. */
export function themeColour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

let tip: HTMLElement | undefined;

/** Shows a text beside the pointer; without a text hides it. */
export function showTip(text: string, x = 0, y = 0): void {
  tip ??= document.body.appendChild(element('div', 'tip'));
  tip.setAttribute('role', 'tooltip');
  tip.hidden = !text;
  if (!text) return;
  tip.textContent = text;
  const { width, height } = tip.getBoundingClientRect();
  const left = x + 14 + width > innerWidth ? x - width - 10 : x + 14;
  const top = y + 16 + height > innerHeight ? y - height - 10 : y + 16;
  tip.style.left = `${Math.max(2, left)}px`;
  tip.style.top = `${Math.max(2, top)}px`;
}
