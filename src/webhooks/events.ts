import { createHash } from 'node:crypto';
import type { Request, Response } from 'express';
import QuickLRU from 'quick-lru';
import { messageOf } from '../runtime/error-message.ts';
import { RareWarnings } from '../runtime/log.ts';
import type { Authenticator } from './authenticator.ts';
import type { ChangeNotice } from './notices.ts';
import { RequestProblem, sendJson, sendProblem, unavailable } from './problem.ts';
import { readEvents } from './read-events.ts';
import type { Sender } from './sender-secrets.ts';
import type { Endpoint, EndpointContext } from './webhook-server.ts';

/** How many ids of events are remembered, and for how long: twice as long as a signed request may
 * be repeated. A forgotten event makes a second notice, which does no harm. */
const SEEN = { maxSize: 25_000, maxAge: 600_000 };

/** Answers POST /events, after it has stored the events' notices in Redis. */
export class EventsEndpoint implements Endpoint {
  readonly #authenticator: Authenticator;
  readonly #context: EndpointContext;
  readonly #warnings: RareWarnings;
  /** By sender and event, so that no sender can make another's events look like repetitions. */
  readonly #seen = new QuickLRU<string, true>(SEEN);

  constructor(authenticator: Authenticator, context: EndpointContext) {
    this.#authenticator = authenticator;
    this.#context = context;
    this.#warnings = new RareWarnings(context.log);
  }

  /** @throws RequestProblem */
  async answer(request: Request, response: Response): Promise<void> {
    if (this.#context.stopping.aborted) throw unavailable('the process stops');
    const { sender, body, deliveryId } = await this.#authenticator.receive(request);
    const read = readEvents(request.headersDistinct, body);
    const report = await this.#take(sender, read, deliveryId);
    const problems = read.flatMap((each, index) =>
      each instanceof RequestProblem ? [{ index, problem: each }] : [],
    );
    response.status(202);
    const [first] = problems;
    if (first === undefined) return sendJson(response, report);
    const told = problems.map(({ index, problem }) => ({ index, ...problem.toJSON() }));
    if (problems.length < read.length) return sendJson(response, { ...report, problems: told });
    this.#context.metrics.refused.inc({ reason: first.problem.kind });
    sendProblem(response, first.problem, { problems: told });
  }

  refuse(error: unknown, request: Request, response: Response): void {
    // The client ended the connection: nobody waits for an answer.
    if (request.errored !== null || request.socket.destroyed) return;
    const isProblem = error instanceof RequestProblem;
    if (!isProblem)
      this.#context.log.error(
        { err: error },
        'a webhook request failed: a defect of sutler, please report it',
      );
    const problem = isProblem ? error : unavailable('the request could not be handled');
    const { status, message: detail, field, cause } = problem;
    const reason = cause === undefined ? undefined : messageOf(cause);
    const from = request.socket.remoteAddress;
    this.#warnings.warn({ from, status, detail, field, reason }, 'a webhook request was refused');
    this.#context.metrics.refused.inc({ reason: problem.kind });
    sendProblem(response, problem);
  }

  /** Agrees to receive events: CloudEvents' Web Hooks ask for that first.
   * @see CloudEvents HTTP 1.1 Web Hooks 4 */
  answerOptions(this: void, request: Request, response: Response): void {
    response.set('allow', 'POST, OPTIONS');
    if (request.headers['webhook-request-origin'] === undefined) {
      const detail = 'send events by POST; OPTIONS needs WebHook-Request-Origin';
      return sendProblem(response, new RequestProblem(405, detail, 'method'));
    }
    response.set('webhook-allowed-origin', '*').set('webhook-allowed-rate', '*');
    response.status(204).end();
  }

  /** Stores the notices of all valid events.
   * @param deliveryId  for an event without an id
   * @throws RequestProblem if Redis refuses */
  async #take(sender: Sender, read: ReturnType<typeof readEvents>, deliveryId?: string) {
    const report = { accepted: 0, ignored: 0, duplicates: 0 };
    const notices: ChangeNotice[] = [];
    const keys = new Set<string>();
    const count = (result: string): void =>
      this.#context.metrics.events.inc({ sender: sender.kind, result });
    for (const event of read) {
      if (event instanceof RequestProblem) {
        count('invalid');
        continue;
      }
      const { verdict, eventId = deliveryId } = event;
      const key = eventId === undefined ? undefined : seenKey(sender, eventId);
      if (typeof verdict === 'string') {
        count(`ignored-${verdict}`);
        report.ignored += 1;
      } else if (key !== undefined && (keys.has(key) || this.#seen.has(key))) {
        count('duplicate');
        report.duplicates += 1;
      } else {
        count('notice');
        report.accepted += 1;
        notices.push(verdict);
        if (key !== undefined) keys.add(key);
      }
    }
    await this.#store(notices);
    // Only now, because the sender repeats a refused event with the same id.
    for (const key of keys) this.#seen.set(key, true);
    return report;
  }

  async #store(notices: readonly ChangeNotice[]): Promise<void> {
    const count = (result: string): void =>
      this.#context.metrics.notices.inc({ server: 'events', result }, notices.length);
    try {
      await this.#context.stream.append(notices);
      count('stored');
    } catch (cause) {
      count('lost');
      throw unavailable('the notice could not be stored in Redis', cause);
    }
  }
}

/** A key of bounded length, however long the id. */
function seenKey({ kind, name }: Sender, eventId: string): string {
  const digest = createHash('sha256').update(eventId).digest('base64');
  return `${kind} ${name} ${digest}`;
}
