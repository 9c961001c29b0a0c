// Closed sections: a link into one opens it.

export function installFolds(): void {
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
