// Views that look at every slice: drawn when they are on the screen and the reader's hand rests, so that panning the timeline
// stays smooth.

/** Milliseconds without a change after which such a view is drawn. */
const REST = 90;

/** A function that asks for a drawing. How long the last one took stands under the name among the page's measures. */
export function lazily(name: string, box: HTMLElement, draw: () => void): () => void {
  let visible = false;
  let wanted = true;
  let timer = 0;
  const soon = (): void => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      if (!visible || !wanted) return;
      wanted = false;
      const begin = performance.now();
      draw();
      performance.clearMeasures(`warmcore ${name}`);
      performance.measure(`warmcore ${name}`, { start: begin, end: performance.now() });
    }, REST);
  };
  new IntersectionObserver(
    (entries) => {
      visible = entries.some((entry) => entry.isIntersecting);
      if (visible) soon();
    },
    { rootMargin: '200px' },
  ).observe(box);
  // What was never on the screen is printed too.
  addEventListener('beforeprint', () => {
    if (wanted) draw();
    wanted = false;
  });
  return () => {
    wanted = true;
    soon();
  };
}
