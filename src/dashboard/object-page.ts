import { retryCommand } from '../explain/causes.ts';
import { describe, type Explanation } from '../explain/explain.ts';
import type { Recent } from '../explain/recent.ts';
import type { StatusChange } from '../queue/status.ts';
import { age, inSeconds } from '../runtime/printable.ts';
import { type Content, definitions, type Markup, markup, time } from './markup.ts';
import { fullPage } from './pages.ts';
import { queueOf } from './pending-view.ts';

/** The path of an object's page. */
export function pathOf({ kind, object }: Pick<Explanation, 'kind' | 'object'>): string {
  return `/${kind}s/${object.split('/').map(encodeURIComponent).join('/')}`;
}

/** The page of an object that is pending.
 * @param said  what was just done; '' for nothing */
export function objectPage(e: Explanation, nowMs: number, mayAct: boolean, said = ''): string {
  const { object, cause, status, kind } = e;
  const queue = `/queues/queue/${encodeURIComponent(queueOf(e))}?status=delayed`;
  const retry = markup`<form method="post" action="${pathOf(e)}/retry">
<button>Retry</button></form>`;
  const look = kind === 'claim' ? `sutler explain ${object}` : `kubectl describe pv ${object}`;
  return fullPage(
    object,
    markup`<h1>${object}</h1>
${said === '' ? undefined : markup`<p class="note" role="status">${said}</p>`}
<p class="${cause.isFine ? 'fine' : 'bad'}">${cause.sentence}</p>
${definitions(describe(e, nowMs))}
${timeline((status?.history ?? []).map(changeItem))}
<div class="row">${mayAct ? retry : undefined}
<a href="${queue}">Its queue</a></div>
${inTerminal([look, retryCommand(object)])}`,
  );
}

/** The page of an object whose job was done lately: what happened. */
export function donePage(done: Recent, driver: string, nowMs: number): string {
  const { object, kind, note, addedMs, begunMs, finishedMs, runs, changes } = done;
  const last = begunMs === undefined ? '' : `, the last took ${seconds(finishedMs - begunMs)}`;
  const facts = {
    done: markup`${time(finishedMs)} (${age(nowMs - finishedMs)} ago)`,
    took: `${seconds(finishedMs - addedMs)} from the time it was queued`,
    runs: `${runs}${last}`,
    driver,
  };
  const items = [
    markup`<li>${time(addedMs)} it was queued</li>`,
    ...changes.map(changeItem),
    markup`<li>${time(finishedMs)} it was done</li>`,
  ];
  return fullPage(
    object,
    markup`<h1>${object}</h1>
<p class="fine">It is done${note === '' ? '' : `: ${note}`}</p>
${definitions(facts)}
${timeline(items)}
${kind === 'claim' ? inTerminal([`sutler explain ${object}`]) : undefined}`,
  );
}

function timeline(items: readonly Markup[]): Content {
  return items.length === 0 ? undefined : markup`<h2>Timeline</h2>\n<ol>${items}</ol>`;
}

function changeItem({ atMs, reason, tookMs }: StatusChange): Markup {
  const took = tookMs === undefined ? '' : ` (a run of ${seconds(tookMs)})`;
  return markup`<li>${time(atMs)} ${reason}${took}</li>`;
}

function inTerminal(commands: readonly string[]): Markup {
  const items = commands.map((command) => markup` <code>${command}</code>`);
  return markup`<p class="quiet">In a terminal:${items}</p>`;
}

/** For people. */
function seconds(ms: number): string {
  return ms < 120_000 ? inSeconds(ms) : age(ms);
}
