/** What is wrong with a part, in one line; undefined while nothing is. */
type Check = () => string | undefined;

/** The checks behind /healthz (live) and /readyz (ready), each added where its part is made. The
 * pages list them in the order in which they were added. A second check of the same name replaces
 * the first, in its place: before a part is opened, its check can say what it waits for. */
export class HealthChecks {
  readonly #checks = { live: new Map<string, Check>(), ready: new Map<string, Check>() };

  /** The process must be restarted while the check fails. */
  live(name: string, check: Check): void {
    this.#checks.live.set(name, check);
  }

  /** The process can't do its work while the check fails. */
  ready(name: string, check: Check): void {
    this.#checks.ready.set(name, check);
  }

  /** Runs all checks of a page, or the one with the given name.
   * @returns HTTP status and text: 200 "ok", 503 with a line per check, or 404 for an unknown name
   */
  answer(page: 'live' | 'ready', name: string): { readonly code: number; readonly text: string } {
    const checks = [...this.#checks[page]];
    const asked = checks.filter(([known]) => name === '' || known === name);
    if (name !== '' && asked.length === 0) {
      const known = checks.map((check) => check[0]).join(', ');
      return { code: 404, text: `no check ${name}; there are: ${known}\n` };
    }
    const results = asked.map(([known, check]) => ({ known, trouble: check() }));
    const isFine = results.every(({ trouble }) => trouble === undefined);
    const lines = results.map(({ known, trouble }) =>
      trouble === undefined ? `[+]${known} ok` : `[-]${known}: ${trouble}`,
    );
    return {
      code: isFine ? 200 : 503,
      text: `${[...lines, isFine ? 'ok' : 'not ok'].join('\n')}\n`,
    };
  }
}
