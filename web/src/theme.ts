// Light and dark: the system's choice until the reader chooses.

/** Tells views to draw again in other colours. */
export const THEME_CHANGED = 'warmcore-theme';

const system = matchMedia('(prefers-color-scheme: dark)');

/** Whether the page is dark now. */
export function isDark(): boolean {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === 'dark' : system.matches;
}

export function installTheme(): void {
  const control = document.getElementById('theme');
  const changed = (): void => {
    if (control) control.textContent = isDark() ? 'Light' : 'Dark';
    document.dispatchEvent(new Event(THEME_CHANGED));
  };
  system.addEventListener('change', changed);
  if (!control) return;
  control.hidden = false;
  control.addEventListener('click', () => {
    document.documentElement.dataset.theme = isDark() ? 'light' : 'dark';
    changed();
  });
  changed();
}
