// Closed sections: a link into one opens it. On a small screen more is closed.

import { SMALL_SCREEN } from './dom';

export function installFolds(): void {
  if (innerWidth <= SMALL_SCREEN) {
    document.querySelectorAll<HTMLDetailsElement>('details.fold-small').forEach((details) => (details.open = false));
  }
  const open = (): void => {
    const target = location.hash.length > 1 ? document.getElementById(decodeURIComponent(location.hash.slice(1))) : null;
    const details = target?.querySelector<HTMLDetailsElement>('details.closed') ?? target?.closest('details');
    if (!details || details.open) return;
    details.open = true;
    target?.scrollIntoView();
  };
  addEventListener('hashchange', open);
  // A second click on the same link changes no address.
  document.querySelectorAll('nav a').forEach((link) => link.addEventListener('click', () => setTimeout(open)));
  open();
}
