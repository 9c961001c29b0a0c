// A link to a moment: the span that a run's views show stands in the page's address, and a page opened with it shows that span.

import type { RunState } from './state';

/** Milliseconds without a change after which the address is renewed. */
const REST = 250;

/** The address's part for a span of run `index`. */
function written(index: number, from: number, to: number): string {
  return `#at-${index}=${Math.round(from)}-${Math.round(to)}ns`;
}

function read(index: number): [number, number] | undefined {
  const found = /^#at-(\d+)=(\d+)-(\d+)ns$/.exec(location.hash);
  return found && Number(found[1]) === index && Number(found[2]) < Number(found[3]) ? [Number(found[2]), Number(found[3])] : undefined;
}

/** Lets the address and the span of a run's views follow each other; `box` is what shows the span. */
export function followAddress(index: number, state: RunState, box: HTMLElement): void {
  const follow = (): void => {
    const span = read(index);
    if (!span) return;
    state.show(...span);
    box.scrollIntoView();
  };
  let timer = 0;
  let known = written(index, state.from, state.to);
  state.listen(() => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      const now = written(index, state.from, state.to);
      if (now === known) return;
      known = now;
      history.replaceState(null, '', now);
    }, REST);
  });
  addEventListener('hashchange', follow);
  follow();
}
