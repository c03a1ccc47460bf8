import { leaderOf, whyNoWorker } from '../explain/driver-state.ts';
import { describe, type Explanation, inWords } from '../explain/explain.ts';
import { countCauses, describeJournal } from '../explain/report.ts';
import { describeTimes, quantiles } from '../explain/time-to-volume.ts';
import { age, isoTime } from '../runtime/printable.ts';
import { type Content, type Markup, markup } from './markup.ts';
import { fullPage } from './pages.ts';
import { type DriverView, type Overview, queueOf } from './pending-view.ts';

/** What the first page shows of all that is pending. */
export interface Filter {
  readonly show: 'claims' | 'volumes';
  /** '' for all, as in the next two. */
  readonly cause: string;
  readonly class: string;
  readonly namespace: string;
  /** From 1 on. */
  readonly page: number;
}

/** Rows of a page. */
export const PAGE_ROWS = 50;
/** Characters of a reason in a row; the object's own page has all of it. */
const REASON_LENGTH = 300;

/** Those of the objects that the filter asks for. */
export function filterPending(
  pending: readonly Explanation[],
  filter: Filter,
): readonly Explanation[] {
  return pending.filter(
    ({ object, className, cause }) =>
      (filter.cause === '' || cause.name === filter.cause) &&
      (filter.class === '' || className === filter.class) &&
      (filter.namespace === '' || object.startsWith(`${filter.namespace}/`)),
  );
}

interface Listing {
  readonly overview: Overview;
  readonly filter: Filter;
  /** How many objects the filter finds. */
  readonly found: number;
  /** Those of the page. */
  readonly rows: readonly Explanation[];
}

/** The first page.
 * @param o.mayAct  shows what changes something */
export function pendingPage(
  o: Listing & { readonly redis: string; readonly mayAct: boolean },
): string {
  const { drivers, atMs } = o.overview;
  const cards = drivers.map((driver) => driverCard(driver));
  return fullPage(
    'Pending',
    markup`<h1>What is pending</h1>
<p class="quiet">As of ${isoTime(atMs)}, by Redis at ${o.redis}.</p>
<div class="cards">${cards}${processCard(drivers)}</div>
${pendingSection(o)}`,
  );
}

function driverCard(view: DriverView): Markup {
  const { state, cause, isFine, perMinute, provisioned } = view;
  const { driver, drain, gateway, journal } = state;
  const noWorker = whyNoWorker(state);
  const facts: Readonly<Record<string, Content>> = {
    Leader: leaderOf(state) ?? bad('none'),
    Gateway: gateway === '' ? bad('none is named') : gateway,
    Workers: noWorker === undefined ? 'at work' : bad(noWorker),
    Drain: drain === undefined ? 'no' : bad(`by ${drain.by} since ${isoTime(drain.atMs)}`),
    Journal:
      journal.journalTrouble === undefined ? describeJournal(journal) : bad(journal.journalTrouble),
  };
  return markup`<section class="card"><h2>${driver}:
<span class="${isFine ? 'fine' : 'bad'}">${isFine ? 'fine' : 'somebody has to act'}</span></h2>
${cause && markup`<p class="note">${cause.sentence}; ${cause.actor}: ${cause.step}</p>`}
${definitions(facts)}
${throughput(perMinute)}
${times(provisioned)}
<p class="quiet">To drain it: <code>sutler drain --driver-name=${driver}</code></p>
</section>`;
}

function processCard([first]: readonly DriverView[]): Content {
  if (first === undefined) return markup`<p class="note">Start ingest beside a driver.</p>`;
  const items = first.state.processes.map(({ process, instance, version, lines }) => {
    const state =
      lines.length === 0 ? markup`<span class="fine">ready</span>` : bad(lines.join('; '));
    return markup`<li>${process} ${instance}, version ${version}: ${state}</li>`;
  });
  return markup`<section class="card"><h2>Processes: ${items.length}</h2>
<ul>${items}</ul></section>`;
}

function definitions(facts: Readonly<Record<string, Content>>): Markup {
  const rows = Object.entries(facts).map(
    ([name, text]) => markup`<dt>${name}</dt><dd>${text}</dd>`,
  );
  return markup`<dl>${rows}</dl>`;
}

function bad(text: string): Markup {
  return markup`<span class="bad">${text}</span>`;
}

const CHART_HEIGHT = 30;

function throughput(perMinute: readonly number[]): Markup {
  const total = perMinute.reduce((sum, count) => sum + count, 0);
  const most = Math.max(...perMinute);
  const text = `${total} claims done in the last hour, at most ${most} in a minute`;
  return chart(text, [perMinute]);
}

function times(byMinute: DriverView['provisioned']): Content {
  const text = describeTimes(byMinute.flat());
  if (text === '') return undefined;
  const found = byMinute.map(quantiles);
  const [most, half] = ([1, 0] as const).map((i) => found.map((each) => each?.[i] ?? 0));
  return chart(`Claims of the last hour: ${text}`, [most ?? [], half ?? []]);
}

/** A bar for each minute.
 * @param series  the tallest first */
function chart(text: string, series: readonly (readonly number[])[]): Markup {
  const most = Math.max(...series.flat());
  const paths = series.map((values) => {
    const bars = values.map((value, i) => {
      const height = most === 0 ? 0 : (value / most) * CHART_HEIGHT;
      return height && `M${i * 4} ${CHART_HEIGHT}v-${height.toFixed(1)}h3v${height.toFixed(1)}z`;
    });
    return markup`<path d="${bars.filter(Boolean).join('')}"/>`;
  });
  const box = `0 0 ${(series[0]?.length ?? 0) * 4} ${CHART_HEIGHT}`;
  return markup`<svg viewBox="${box}" preserveAspectRatio="none"
role="img" aria-label="${text}">${paths}</svg>
<p class="quiet">${text}</p>`;
}

function pendingSection({ overview, filter, found, rows }: Listing): Markup {
  const all = overview[filter.show];
  const lists = { claims: 'Claims that are not Bound', volumes: 'Volumes to delete' } as const;
  const tabs = (['claims', 'volumes'] as const).map((show) =>
    link({ ...NO_FILTER, show }, `${lists[show]}: ${overview[show].length}`, show === filter.show),
  );
  return markup`<h2 id="list">${lists[filter.show]}</h2>
<nav class="row" aria-label="Lists">${tabs}</nav>
${causeLinks(all, filter)}
${filter.show === 'claims' ? form(filter) : undefined}
${table(rows, overview.atMs, filter)}
${paging(found, filter)}`;
}

const NO_FILTER: Filter = { show: 'claims', cause: '', class: '', namespace: '', page: 1 };

function causeLinks(all: readonly Explanation[], filter: Filter): Markup {
  const others = filterPending(all, { ...filter, cause: '' });
  const to = (cause: string, text: string): Markup =>
    link({ ...filter, page: 1, cause }, text, cause === filter.cause);
  const counts = countCauses(others).map(({ count, oldest: { cause } }) =>
    to(cause.name, `${cause.name} ${count}`),
  );
  return markup`<nav class="row" aria-label="Causes">
${to('', `All causes ${others.length}`)}\n${counts}</nav>`;
}

function form(filter: Filter): Markup {
  const fields = (['namespace', 'class'] as const).map(
    (name) => markup`<label>${name}
<input name="${name}" value="${filter[name]}" maxlength="253"></label>`,
  );
  return markup`<form class="row" method="get" action="/">
<input type="hidden" name="cause" value="${filter.cause}">${fields}<button>Filter</button>
</form>`;
}

const COLUMNS = ['Object', 'Class', 'Pending for', 'Cause', 'Runs', 'Next run', 'To do'] as const;

function table(rows: readonly Explanation[], nowMs: number, filter: Filter): Markup {
  if (rows.length === 0) return markup`<p class="fine">Nothing is pending.</p>`;
  const head = COLUMNS.map((name) => markup`<th scope="col">${name}</th>`);
  return markup`<table><thead><tr>${head}</tr></thead>
<tbody>
${rows.map((each) => tableRow(each, nowMs, filter))}</tbody></table>`;
}

function tableRow(each: Explanation, nowMs: number, filter: Filter): Markup {
  const { object, className, sinceMs, cause, status, nextMs, isRunning } = each;
  const reason = cause.sentence.slice(0, REASON_LENGTH);
  const cells: Record<(typeof COLUMNS)[number], Content> = {
    Object: markup`<a href="${pathOf(each)}">${object}</a>`,
    Class: link({ ...filter, page: 1, class: className }, className),
    'Pending for': sinceMs && time(sinceMs, age(nowMs - sinceMs)),
    Cause: markup`<strong class="${cause.isFine ? '' : 'bad'}">${cause.name}</strong>
${reason}${reason === cause.sentence ? '' : '…'}`,
    Runs: status?.runs ?? 0,
    'Next run': isRunning === true ? 'runs now' : nextMs && time(nextMs, inWords(nextMs - nowMs)),
    'To do': `${cause.actor}: ${cause.step}`,
  };
  const row = COLUMNS.map((name) => markup`<td data-name="${name}">${cells[name]}</td>`);
  return markup`<tr>${row}</tr>\n`;
}

function time(ms: number, text: string): Markup {
  const iso = isoTime(ms);
  return markup`<time datetime="${iso}" title="${iso}">${text}</time>`;
}

function paging(found: number, filter: Filter): Markup {
  const { page } = filter;
  const first = (page - 1) * PAGE_ROWS;
  const last = Math.min(found, first + PAGE_ROWS);
  return markup`<nav class="row" aria-label="Rows">
${page > 1 ? link({ ...filter, page: page - 1 }, 'Previous rows') : undefined}
<span>${found === 0 ? 0 : first + 1} to ${last} of ${found}, the oldest first</span>
${last < found ? link({ ...filter, page: page + 1 }, 'Next rows') : undefined}</nav>`;
}

/** The page of one object.
 * @param said  what was just done; '' for nothing */
export function objectPage(e: Explanation, nowMs: number, mayAct: boolean, said = ''): string {
  const { object, cause, status } = e;
  const queue = `/queues/queue/${encodeURIComponent(queueOf(e))}?status=delayed`;
  const history = (status?.history ?? []).map(
    ({ atMs, reason }) => markup`<li>${time(atMs, isoTime(atMs))} ${reason}</li>`,
  );
  const run = markup`<form method="post" action="${pathOf(e)}/run">
<button>Try now</button></form>`;
  const command = e.kind === 'claim' ? `sutler explain ${object}` : `kubectl describe pv ${object}`;
  return fullPage(
    object,
    markup`<h1>${object}</h1>
${said === '' ? undefined : markup`<p class="note" role="status">${said}</p>`}
<p class="${cause.isFine ? 'fine' : 'bad'}">${cause.sentence}</p>
${definitions(describe(e, nowMs))}
${history.length === 0 ? undefined : markup`<h2>Timeline</h2>\n<ol>${history}</ol>`}
<div class="row">${mayAct ? run : undefined}
<a href="${queue}">Its queue</a></div>
<p class="quiet">In a terminal: <code>${command}</code></p>`,
  );
}

/** The path of an object's page. */
export function pathOf({ kind, object }: Pick<Explanation, 'kind' | 'object'>): string {
  return `/${kind}s/${object.split('/').map(encodeURIComponent).join('/')}`;
}

function link(filter: Filter, text: string, isCurrent = false): Markup {
  const current = isCurrent ? markup` aria-current="true"` : undefined;
  return markup`<a href="${urlOf(filter)}"${current}>${text}</a>`;
}

function urlOf(filter: Filter): string {
  const changed = Object.entries(filter).filter(
    ([name, value]) => value !== NO_FILTER[name as keyof Filter],
  );
  return `/?${new URLSearchParams(changed as [string, string][]).toString()}#list`;
}
