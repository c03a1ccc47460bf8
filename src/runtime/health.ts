/** What is wrong with a part, in one line; undefined while nothing is. */
type Check = () => string | undefined;

/** A page of checks. */
export type HealthPage = 'live' | 'ready';

interface Result {
  readonly name: string;
  readonly trouble: string | undefined;
}

/** What is shown of a page. */
interface Look {
  readonly isFine: boolean;
  /** Whether a check was looked at. */
  readonly isFound: boolean;
  readonly lines: readonly string[];
}

/** The checks behind /healthz (live) and /readyz (ready), each added where its part is made. The
 * pages list them in the order in which they were added. A second check of the same name replaces
 * the first, in its place: before a part is opened, its check can say what it waits for.
 *
 * A group is a part of the work that goes on while others can't, such as one driver of several. Its
 * checks are called GROUP/NAME. The process is ready while one group is, but it must be restarted
 * if any group says so. A note is shown on /readyz and changes nothing.
 *
 * A part is one of several processes that run as one (`sutler all`): each of them must be fine. Its
 * checks are called PART/NAME, and NAME finds them too. */
export class HealthChecks {
  readonly #checks = { live: new Map<string, Check>(), ready: new Map<string, Check>() };
  readonly #groups = new Map<string, HealthChecks>();
  readonly #notes = new Map<string, Check>();
  readonly #parts = new Map<string, HealthChecks>();

  /** The process must be restarted while the check fails. */
  live(name: string, check: Check): void {
    this.#checks.live.set(name, check);
  }

  /** The process can't do its work while the check fails. */
  ready(name: string, check: Check): void {
    this.#checks.ready.set(name, check);
  }

  /** The operator should know what the check says, but the process does its work. */
  note(name: string, check: Check): void {
    this.#notes.set(name, check);
  }

  removeNote(name: string): void {
    this.#notes.delete(name);
  }

  /** The checks of the group with this name, which has none at first.
   * @throws Error if there is one already */
  addGroup(name: string): HealthChecks {
    if (this.#groups.has(name)) throw new Error(`there is a group ${name} already`);
    const group = new HealthChecks();
    this.#groups.set(name, group);
    return group;
  }

  removeGroup(name: string): void {
    this.#groups.delete(name);
  }

  /** The checks of a part of this name, which has none at first. */
  addPart(name: string): HealthChecks {
    const part = new HealthChecks();
    this.#parts.set(name, part);
    return part;
  }

  /** Runs all checks of a page, those of a group, or those with the given name.
   * @returns HTTP status and text: 200 "ok", 503 with a line per check, or 404 for an unknown name
   */
  answer(page: HealthPage, name: string): { readonly code: number; readonly text: string } {
    const { isFine, isFound, lines } = this.#look(page, name);
    if (name !== '' && !isFound)
      return { code: 404, text: `no check ${name}; there are: ${this.#names(page).join(', ')}\n` };
    return {
      code: isFine ? 200 : 503,
      text: `${[...lines, isFine ? 'ok' : 'not ok'].join('\n')}\n`,
    };
  }

  /** @param asked  name of a check or group; '' for all */
  #look(page: HealthPage, asked: string): Look {
    const own = this.#results(page).filter((result) => isAsked(asked, result.name));
    const groups = [...this.#groups]
      .map(([group, checks]) =>
        checks
          .#results(page)
          .filter((result) => isAsked(asked, result.name, group))
          .map((result) => ({ ...result, name: `${group}/${result.name}` })),
      )
      .filter(({ length }) => length > 0);
    const noted = page === 'ready' && asked === '' ? [['', this] as const, ...this.#groups] : [];
    const notes = noted.flatMap(([group, checks]) => checks.#noteLines(group));
    const parts = [...this.#parts].map(([part, checks]) => {
      const inPart = `${asked}/`.startsWith(`${part}/`) ? asked.slice(part.length + 1) : asked;
      const { lines, ...rest } = checks.#look(page, inPart);
      return { ...rest, lines: lines.map((line) => line.replace(']', `]${part}/`)) };
    });
    return {
      isFine: areFine(own) && areGroupsFine(page, groups) && parts.every(({ isFine }) => isFine),
      isFound: own.length + groups.length > 0 || parts.some(({ isFound }) => isFound),
      lines: [
        ...[...own, ...groups.flat()].map(lineOf),
        ...notes,
        ...parts.flatMap(({ lines }) => lines),
      ],
    };
  }

  #results(page: HealthPage): readonly Result[] {
    return [...this.#checks[page]].map(([name, check]) => ({ name, trouble: check() }));
  }

  #names(page: HealthPage): readonly string[] {
    const ofGroups = [...this.#groups].flatMap(([group, checks]) =>
      checks.#names(page).map((name) => `${group}/${name}`),
    );
    const ofParts = [...this.#parts].flatMap(([part, checks]) =>
      checks.#names(page).map((name) => `${part}/${name}`),
    );
    return [...this.#checks[page].keys(), ...ofGroups, ...ofParts];
  }

  #noteLines(group: string): readonly string[] {
    return [...this.#notes].flatMap(([name, check]) => {
      const text = check();
      return text === undefined ? [] : [`[!]${group === '' ? '' : `${group}/`}${name}: ${text}`];
    });
  }
}

/** Whether a page that was asked for one name shows this check. */
function isAsked(asked: string, name: string, group?: string): boolean {
  if (asked === '' || asked === name) return true;
  return group !== undefined && (asked === group || asked === `${group}/${name}`);
}

function areFine(results: readonly Result[]): boolean {
  return results.every(({ trouble }) => trouble === undefined);
}

function areGroupsFine(page: HealthPage, groups: readonly (readonly Result[])[]): boolean {
  if (page === 'live' || groups.length === 0) return groups.every(areFine);
  return groups.some(areFine);
}

function lineOf({ name, trouble }: Result): string {
  return trouble === undefined ? `[+]${name} ok` : `[-]${name}: ${trouble}`;
}
