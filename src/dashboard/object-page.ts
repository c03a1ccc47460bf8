import { retryCommand } from '../explain/causes.ts';
import { describe, type Explanation } from '../explain/explain.ts';
import { queueName } from '../queue/queue-keys.ts';
import { definitions, markup } from './markup.ts';
import { fullPage } from './pages.ts';

/** Returns the path of an object's page. */
export function pathOf({ kind, object }: Pick<Explanation, 'kind' | 'object'>): string {
  return `/${kind}s/${object.split('/').map(encodeURIComponent).join('/')}`;
}

/** Writes the page of a pending object.
 * @param said  what was just done; '' for nothing */
export function objectPage(e: Explanation, nowMs: number, mayAct: boolean, said = ''): string {
  const { object, cause, kind, driver } = e;
  const queue = `/queues/queue/${encodeURIComponent(queueName(kind, driver))}?status=delayed`;
  const retry = markup`<form method="post" action="${pathOf(e)}/retry">
<button>Retry</button></form>`;
  const look = kind === 'claim' ? `sutler explain ${object}` : `kubectl describe pv ${object}`;
  return fullPage(
    object,
    markup`<h1>${object}</h1>
${said === '' ? undefined : markup`<p class="note" role="status">${said}</p>`}
<p class="${cause.isFine ? 'fine' : 'bad'}">${cause.sentence}</p>
${definitions(describe(e, nowMs))}
<div class="row">${mayAct ? retry : undefined}
<a href="${queue}">Its queue</a></div>
<p class="quiet">In a terminal: <code>${look}</code> <code>${retryCommand(object)}</code></p>`,
  );
}
