/** Says in one line what is wrong with a part; undefined if nothing is. */
type Check = () => string | undefined;

type HealthPage = 'live' | 'ready';

/** The part of a page that was asked for. */
interface Look {
  readonly isFine: boolean;
  readonly isFound: boolean;
  readonly lines: readonly string[];
}

/** Holds the checks behind /healthz (live) and /readyz (ready), in the order in which they were
 * added. A check replaces an earlier one of the same name, so a part can say what it waits for
 * before it is open.
 *
 * A group is work that goes on while other groups can't, such as one driver of several. The process
 * is ready while one group is, but must be restarted if any group says so. A part is one of several
 * processes that run as one (`sutler all`); every part must be fine. Checks of both are called
 * GROUP/NAME, and NAME alone finds all of that name. A note is shown on /readyz and changes
 * nothing. */
export class HealthChecks {
  readonly #checks = { live: new Map<string, Check>(), ready: new Map<string, Check>() };
  readonly #notes = new Map<string, Check>();
  /** Groups and parts. */
  readonly #below = new Map<string, { readonly checks: HealthChecks; readonly isPart: boolean }>();

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

  /** Adds a group without checks. It replaces an earlier group of that name. */
  addGroup(name: string): HealthChecks {
    return this.#addBelow(name, false);
  }

  addPart(name: string): HealthChecks {
    return this.#addBelow(name, true);
  }

  #addBelow(name: string, isPart: boolean): HealthChecks {
    const checks = new HealthChecks();
    this.#below.set(name, { checks, isPart });
    return checks;
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
    const below = [...this.#below].map(([name, { checks, isPart }]) => {
      // `asked` may begin with the group's name; the lines of the group always do.
      const isNamed = `${asked}/`.startsWith(`${name}/`);
      const look = checks.#look(page, isNamed ? asked.slice(name.length + 1) : asked);
      const lines = look.lines.map((line) => line.replace(']', `]${name}/`));
      return { ...look, lines, mustBeFine: isPart || page === 'live' };
    });
    // Groups that lack the check don't count.
    const found = below.filter(({ isFound }) => isFound);
    const anyOf = found.filter(({ mustBeFine }) => !mustBeFine);
    const notes = page === 'ready' && asked === '' ? [...this.#notes] : [];
    return {
      isFine:
        own.every(({ trouble }) => trouble === undefined) &&
        found.every(({ isFine, mustBeFine }) => isFine || !mustBeFine) &&
        (anyOf.length === 0 || anyOf.some(({ isFine }) => isFine)),
      isFound: own.length > 0 || found.length > 0,
      lines: [
        ...own.map(({ name, trouble }) =>
          trouble === undefined ? `[+]${name} ok` : `[-]${name}: ${trouble}`,
        ),
        ...notes.flatMap(([name, check]) => {
          const text = check();
          return text === undefined ? [] : [`[!]${name}: ${text}`];
        }),
        ...below.flatMap(({ lines }) => lines),
      ],
    };
  }

  #names(page: HealthPage): readonly string[] {
    const below = [...this.#below].flatMap(([name, { checks }]) =>
      checks.#names(page).map((each) => `${name}/${each}`),
    );
    return [...this.#checks[page].keys(), ...below];
  }
}
