import { createHash } from 'node:crypto';
import { leaderOf, workersOf } from '../explain/driver-state.ts';
import { type Explanation, inWords } from '../explain/explain.ts';
import { faultOf, groupFaults } from '../explain/fault.ts';
import { describeJournal, type DriverReport } from '../explain/report.ts';
import { age, isoTime } from '../runtime/printable.ts';
import { type Content, definitions, type Markup, markup, time } from './markup.ts';
import { pathOf } from './object-page.ts';
import { fullPage } from './pages.ts';
import type { Overview } from './pending-view.ts';

/** The part of the pending objects that the first page shows. */
export interface Filter {
  readonly show: 'claims' | 'volumes';
  /** A faultId; '' for all, as in the next three. */
  readonly fault: string;
  /** Part of "namespace/claim", or of the volume's name. */
  readonly name: string;
  readonly class: string;
  readonly namespace: string;
  /** From 1 on. */
  readonly page: number;
}

/** Rows of a page. */
export const PAGE_ROWS = 50;
/** Faults of a page. */
const MOST_FAULTS = 50;
/** Characters of a reason in a row. The object's own page shows all of it. */
const REASON_LENGTH = 300;

/** Finds the objects that match the filter.
 * @returns `faults`: grouped by fault, whatever the filter's fault; `found`: only that fault's */
export function filterPending(pending: readonly Explanation[], filter: Filter) {
  const objects = pending.filter(
    ({ object, className }) =>
      object.includes(filter.name) &&
      (filter.class === '' || className === filter.class) &&
      (filter.namespace === '' || object.startsWith(`${filter.namespace}/`)),
  );
  const faults: Faults = groupFaults(objects);
  const ofFault = faults.find(([oldest]) => faultId(oldest) === filter.fault);
  return { faults, found: filter.fault === '' ? objects : (ofFault ?? []) };
}

type Faults = ReturnType<typeof groupFaults<Explanation>>;

/** Returns the fault's name in a URL. */
function faultId(e: Explanation): string {
  return createHash('sha256').update(faultOf(e)).digest('hex').slice(0, 12);
}

interface Listing {
  readonly overview: Overview;
  readonly filter: Filter;
  readonly faults: Faults;
  /** Number of objects that match the filter. */
  readonly found: number;
  /** The objects on this page. */
  readonly rows: readonly Explanation[];
}

/** Writes the first page. */
export function pendingPage(o: Listing & { readonly redis: string }): string {
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

function driverCard(view: DriverReport): Markup {
  const { state, cause, isFine } = view;
  const { driver, drain, gateway, journal } = state;
  const facts: Readonly<Record<string, Content>> = {
    Leader: leaderOf(state) ?? bad('none'),
    Gateway: gateway === '' ? bad('none is named') : gateway,
    Workers: workersOf(state).length > 0 ? 'at work' : bad('none'),
    Drain: drain === undefined ? 'no' : bad(`by ${drain.by} since ${isoTime(drain.atMs)}`),
    Journal:
      journal.journalTrouble === undefined ? describeJournal(journal) : bad(journal.journalTrouble),
  };
  return markup`<section class="card"><h2>${driver}:
<span class="${isFine ? 'fine' : 'bad'}">${isFine ? 'fine' : 'somebody has to act'}</span></h2>
${cause && markup`<p class="note">${cause.sentence}; ${cause.actor}: ${cause.step}</p>`}
${definitions(facts)}
<p class="quiet">To drain it: <code>sutler drain --driver-name=${driver}</code></p>
</section>`;
}

function processCard([first]: readonly DriverReport[]): Content {
  if (first === undefined)
    return markup`<p class="note">Start sutler beside a driver, or wait until the driver answers.</p>`;
  const items = first.state.processes.map(({ process, instance, version, lines }) => {
    const state =
      lines.length === 0 ? markup`<span class="fine">ready</span>` : bad(lines.join('; '));
    return markup`<li>${process} ${instance}, version ${version}: ${state}</li>`;
  });
  return markup`<section class="card"><h2>Processes: ${items.length}</h2>
<ul>${items}</ul></section>`;
}

function bad(text: string): Markup {
  return markup`<span class="bad">${text}</span>`;
}

function pendingSection({ overview, filter, faults, found, rows }: Listing): Markup {
  const lists = { claims: 'Claims that are not Bound', volumes: 'Volumes to delete' } as const;
  const tabs = (['claims', 'volumes'] as const).map((show) =>
    link({ ...NO_FILTER, show }, `${lists[show]}: ${overview[show].length}`, show === filter.show),
  );
  return markup`<h2 id="list">${lists[filter.show]}</h2>
<nav class="row" aria-label="Lists">${tabs}</nav>
${form(filter)}
<div>${faultTable(faults, overview.atMs, filter)}</div>
<div>${objectTable(rows, overview.atMs, filter)}
${paging(found, filter)}</div>`;
}

const NO_FILTER: Filter = {
  show: 'claims',
  fault: '',
  name: '',
  class: '',
  namespace: '',
  page: 1,
};

function form(filter: Filter): Markup {
  const names =
    filter.show === 'claims' ? (['name', 'namespace', 'class'] as const) : ['name' as const];
  const fields = names.map(
    (name) => markup`<label>${name}
<input name="${name}" value="${filter[name]}" maxlength="253"></label>`,
  );
  return markup`<form class="row" method="get" action="/">
<input type="hidden" name="show" value="${filter.show}">${fields}<button>Filter</button>
</form>`;
}

/** Makes a table, whose rows are blocks on a narrow screen. */
function table(name: string, columns: readonly string[], rows: readonly (readonly Content[])[]) {
  const head = columns.map((column) => markup`<th scope="col">${column}</th>`);
  const body = rows.map((cells) => {
    const row = cells.map((cell, i) => markup`<td data-name="${columns[i]}">${cell}</td>`);
    return markup`<tr>${row}</tr>\n`;
  });
  return markup`<table class="${name}"><thead><tr>${head}</tr></thead>
<tbody>
${body}</tbody></table>`;
}

const FAULT_COLUMNS = ['Cause', 'To do', 'How many', 'The oldest'] as const;

/** Makes a table with a row for each fault. */
function faultTable(faults: Faults, nowMs: number, filter: Filter): Markup {
  if (faults.length === 0) {
    const { fault, name, class: className, namespace } = filter;
    const isFiltered = `${fault}${name}${className}${namespace}` !== '';
    return markup`<p class="fine">Nothing ${isFiltered ? 'that matches the filter ' : ''}is
pending.</p>`;
  }
  const rows = faults.slice(0, MOST_FAULTS).map((fault) => {
    const [oldest] = fault;
    const { object, cause, sinceMs } = oldest;
    const id = faultId(oldest);
    const reason = cause.sentence.slice(0, REASON_LENGTH);
    const all = markup`<a href="${pathOf(oldest)}">all of it</a>`;
    const rest = reason === cause.sentence ? undefined : markup`… ${all}`;
    return [
      markup`${causeName(oldest)} ${reason}${rest}`,
      `${cause.actor}: ${cause.step}`,
      link(
        { ...filter, page: 1, fault: id },
        `${fault.length} ${fault.length === 1 ? oldest.kind : filter.show}`,
        id === filter.fault,
      ),
      markup`<a href="${pathOf(oldest)}">${object}</a> ${sinceMs && time(sinceMs, age(nowMs - sinceMs))}`,
    ];
  });
  const more = faults.length - rows.length;
  return markup`${table('faults', FAULT_COLUMNS, rows)}
${more > 0 ? markup`<p>And ${more} more causes: filter by name.</p>` : undefined}
${filter.fault === '' ? undefined : markup`<p>${link({ ...filter, page: 1, fault: '' }, 'All causes')}</p>`}`;
}

const OBJECT_COLUMNS = ['Object', 'Class', 'Pending for', 'Cause', 'Runs', 'Next run'] as const;

function objectTable(objects: readonly Explanation[], nowMs: number, filter: Filter): Content {
  if (objects.length === 0 && filter.fault !== '')
    return markup`<p class="fine">Nothing waits for this cause any more.</p>`;
  if (objects.length === 0) return undefined;
  const rows = objects.map((each) => {
    const { className, sinceMs, status, nextMs, isRunning } = each;
    return [
      markup`<a href="${pathOf(each)}">${each.object}</a>`,
      link({ ...filter, page: 1, class: className }, className),
      sinceMs && time(sinceMs, age(nowMs - sinceMs)),
      causeName(each),
      status?.runs ?? 0,
      isRunning === true ? 'runs now' : nextMs && time(nextMs, inWords(nextMs - nowMs)),
    ];
  });
  return table('objects', OBJECT_COLUMNS, rows);
}

function causeName({ cause }: Explanation): Markup {
  return markup`<strong class="${cause.isFine ? '' : 'bad'}">${cause.name}</strong>`;
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
