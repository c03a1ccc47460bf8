/** What is wrong with a part, in one line; undefined while nothing is. */
type Check = () => string | undefined;

type HealthPage = 'live' | 'ready';

/** What is shown of a page. */
interface Look {
  readonly isFine: boolean;
  readonly isFound: boolean;
  readonly lines: readonly string[];
}

/** The checks behind /healthz (live) and /readyz (ready), each added where its part is made. The
 * pages list them in the order in which they were added. A second check of the same name replaces
 * the first, in its place: before a part is opened, its check can say what it waits for.
 *
 * A group is a part of the work that goes on while others can't, such as one driver of several. The
 * process is ready while one group is, but it must be restarted if any group says so. A part is one
 * of several processes that run as one (`sutler all`): each of them must be fine. The checks of
 * both are called GROUP/NAME, and NAME finds those of all. A note is shown on /readyz and changes
 * nothing. */
export class HealthChecks {
  readonly #checks = { live: new Map<string, Check>(), ready: new Map<string, Check>() };
  readonly #notes = new Map<string, Check>();
  readonly #groups = new Map<string, HealthChecks>();
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

  addGroup(name: string): HealthChecks {
    return addTo(this.#groups, name);
  }

  removeGroup(name: string): void {
    this.#groups.delete(name);
  }

  addPart(name: string): HealthChecks {
    return addTo(this.#parts, name);
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

  /** The failed checks and the notes of /readyz, a line each. */
  troubles(): readonly string[] {
    return this.#look('ready', '').lines.filter((line) => !line.startsWith('[+]'));
  }

  /** @param asked  name of a check, group or part; '' for all */
  #look(page: HealthPage, asked: string): Look {
    const own = [...this.#checks[page]]
      .filter(([name]) => asked === '' || asked === name)
      .map(([name, check]) => ({ name, trouble: check() }));
    const groups = looksOf(this.#groups, asked, (checks, inGroup) => checks.#look(page, inGroup));
    const parts = looksOf(this.#parts, asked, (checks, inPart) => checks.#look(page, inPart));
    const notes = page === 'ready' && asked === '' ? [...this.#notes] : [];
    // A group without such checks says nothing.
    const found = groups.filter(({ isFound }) => isFound);
    const mustAll = page === 'live' || found.length === 0;
    return {
      isFine:
        own.every(({ trouble }) => trouble === undefined) &&
        (mustAll ? found.every(({ isFine }) => isFine) : found.some(({ isFine }) => isFine)) &&
        parts.every(({ isFine }) => isFine),
      isFound: own.length > 0 || [...groups, ...parts].some(({ isFound }) => isFound),
      lines: [
        ...own.map(({ name, trouble }) =>
          trouble === undefined ? `[+]${name} ok` : `[-]${name}: ${trouble}`,
        ),
        ...groups.flatMap(({ lines }) => lines),
        ...notes.flatMap(([name, check]) => {
          const text = check();
          return text === undefined ? [] : [`[!]${name}: ${text}`];
        }),
        ...parts.flatMap(({ lines }) => lines),
      ],
    };
  }

  #names(page: HealthPage): readonly string[] {
    const below = [...this.#groups, ...this.#parts].flatMap(([inner, checks]) =>
      checks.#names(page).map((name) => `${inner}/${name}`),
    );
    return [...this.#checks[page].keys(), ...below];
  }
}

function addTo(all: Map<string, HealthChecks>, name: string): HealthChecks {
  const checks = new HealthChecks();
  all.set(name, checks);
  return checks;
}

/** Looks at each group or part. What is asked for may begin with its name, and lines then do. */
function looksOf(
  all: ReadonlyMap<string, HealthChecks>,
  asked: string,
  look: (checks: HealthChecks, asked: string) => Look,
): readonly Look[] {
  return [...all].map(([name, checks]) => {
    const isNamed = `${asked}/`.startsWith(`${name}/`);
    const found = look(checks, isNamed ? asked.slice(name.length + 1) : asked);
    return { ...found, lines: found.lines.map((line) => line.replace(']', `]${name}/`)) };
  });
}
