// The interactive views: made once the page is there, scene by scene, so that words and tables never wait for them.

import { element } from './dom';
import { Heatmap } from './heatmap/heatmap';
import { followAddress } from './moment';
import { MachineMap } from './map';
import { loadScene, runs, type Scene } from './scene';
import { RunState } from './state';
import { Timeline } from './timeline/timeline';

/** Tells whoever waits for it that the views of a run are there, or that it has none. */
function ready(index: number): void {
  performance.mark('warmcore ready');
  document.documentElement.dataset.ready = String(index + 1);
}

export function installViews(): void {
  runs().forEach((run, index) => {
    const boxes = [...document.querySelectorAll<HTMLElement>(`.view[data-run="${index}"]`)];
    if (boxes.length === 0 || run.scenes.length === 0) {
      ready(index);
      return;
    }
    const notes = boxes.map((box) => {
      const note = element('p', 'loading', 'Unpacking the trial…');
      box.replaceChildren(note);
      return note;
    });
    Promise.all(run.scenes.map((id) => loadScene(id, run.machine)))
      .then((scenes) => {
        const state = new RunState(run, scenes.filter((scene): scene is Scene => scene !== undefined));
        notes.forEach((note) => note.remove());
        for (const box of boxes) {
          if (box.dataset.view === 'timeline') {
            new Timeline(box, state);
            followAddress(index, state, box);
          }
          if (box.dataset.view === 'heatmap') new Heatmap(box, state);
          if (box.dataset.view === 'map') new MachineMap(box, state);
        }
        ready(index);
      })
      .catch((error: unknown) => {
        // Whatever is wrong with the data, the words and tables stay; and the reader is told.
        notes.forEach((note) => (note.textContent = `The trial in this page cannot be shown: ${String(error)}`));
      });
  });
}
