import { createHash } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import QuickLRU from 'quick-lru';
import type { Clock } from '../runtime/clock.ts';
import { type Logger, RareWarnings } from '../runtime/log.ts';
import type { Authenticator } from './authenticator.ts';
import { bodyFormat } from './decode.ts';
import { type ChangeNotice, NoticesUnavailable, type NoticeWriter } from './notices.ts';
import type { WebhookMetrics } from './metrics.ts';
import {
  kindOfProblem,
  type Problem,
  problemJson,
  RequestProblem,
  sendJson,
  sendProblem,
} from './problem.ts';
import { readEvents, type ReadResult } from './read-events.ts';
import { BodyMemory, SenderRates } from './sender-limits.ts';
import { type Sender, senderId } from './sender-secrets.ts';

const MAX_BODY_BYTES = 2 * 1024 * 1024;
/** Bodies that are being received, all together. */
const MAX_MEMORY_BYTES = 32 * 1024 * 1024;
/** The same for bodies whose sender is not known before they are there. */
const MAX_UNVERIFIED_BYTES = 16 * 1024 * 1024;
/** So many bytes count as one more event: what is read costs as much as how often. */
const EVENT_BYTES = 4 * 1024;
const RETRY_SECONDS = 2;
/** Problems of one batch that are reported. */
const MAX_REPORTED = 100;
/** Ids of events that are remembered, and for how long: twice as long as a signed request may be
 * repeated. One that was forgotten makes a second notice, which harms nobody. */
const SEEN = { maxSize: 25_000, maxAge: 600_000 };

export interface EventsServerOptions {
  readonly authenticator: Authenticator;
  readonly writer: NoticeWriter;
  readonly maxEventsPerSecond: number;
  readonly metrics: WebhookMetrics;
  readonly clock: Clock;
  readonly log: Logger;
  /** Aborts when the process stops. */
  readonly stopping: AbortSignal;
}

/** A request whose sender is known. */
interface Delivery {
  readonly sender: Sender;
  readonly body: Buffer;
  /** Id of a signed request. */
  readonly webhookId: string | undefined;
}

/** What became of the events of a request. */
interface Report {
  accepted: number;
  ignored: number;
  duplicates: number;
}

/** Answers POST /events: takes the notices of events into Redis, and then says so. */
export class EventsServer {
  readonly #options: EventsServerOptions;
  readonly #rates: SenderRates;
  /** By sender, so that none can have events of another one taken for repetitions, and event. */
  readonly #seen = new QuickLRU<string, true>(SEEN);
  readonly #memory = new BodyMemory(MAX_MEMORY_BYTES);
  readonly #unverified = new BodyMemory(MAX_UNVERIFIED_BYTES);
  readonly #warnings: RareWarnings;

  constructor(options: EventsServerOptions) {
    const { clock, log, maxEventsPerSecond: perSecond } = options;
    this.#options = options;
    this.#warnings = new RareWarnings(log, clock);
    this.#rates = new SenderRates({ burst: perSecond, perSecond });
  }

  /** Answers a request, whatever is wrong with it.
   * @param identify  called when the sender is known */
  async answer(
    request: IncomingMessage,
    response: ServerResponse,
    identify: () => void,
  ): Promise<void> {
    try {
      await this.#take(request, response, identify);
    } catch (error) {
      // The client ended the connection: nobody waits for an answer.
      if (request.errored !== null || request.socket.destroyed) return;
      const problem = error instanceof RequestProblem ? error.problem : this.#unexpected(error);
      if (error instanceof RequestProblem) this.#report(request, error);
      this.#options.metrics.refused.inc({ reason: kindOfProblem(problem) });
      sendProblem(request, response, problem);
    }
  }

  async #take(
    request: IncomingMessage,
    response: ServerResponse,
    identify: () => void,
  ): Promise<void> {
    if (this.#options.stopping.aborted) throw unavailable('the process stops');
    const { sender, body, webhookId } = await this.#receive(request, identify);
    const id = senderId(sender);
    if (webhookId !== undefined && this.#seen.has(seenKey(id, webhookId))) {
      this.#options.metrics.events.inc({ sender: sender.kind, result: 'duplicate' });
      return sendJson(response, { status: 202, json: { accepted: 0, ignored: 0, duplicates: 1 } });
    }
    this.#charge(id, Math.floor(body.length / EVENT_BYTES));
    const read = readEvents(request.headersDistinct, body);
    this.#charge(id, Math.max(0, read.length - 1));
    const report = await this.#store(sender, read);
    if (webhookId !== undefined) this.#seen.set(seenKey(id, webhookId), true);
    const problems = problemsOf(read);
    const [first] = problems;
    const more = first && { problems: listProblems(problems) };
    if (first === undefined || problems.length < read.length)
      return sendJson(response, { status: 202, json: { ...report, ...more } });
    this.#options.metrics.refused.inc({ reason: kindOfProblem(first.problem) });
    this.#report(request, new RequestProblem(first.problem));
    sendProblem(request, response, first.problem, more);
  }

  /** Finds out who sends, and receives the body: before that, if the headers say who. */
  async #receive(request: IncomingMessage, identify: () => void): Promise<Delivery> {
    const { headersDistinct: headers, socket } = request;
    const verdict = this.#options.authenticator.readHeaders(request);
    if (verdict.kind === 'known') {
      const { sender } = verdict;
      identify();
      this.#admit(sender);
      bodyFormat(headers);
      const limits = { maxBytes: MAX_BODY_BYTES, owner: senderId(sender) };
      return { sender, body: await this.#memory.receive(request, limits), webhookId: undefined };
    }
    bodyFormat(headers);
    const limits = { maxBytes: MAX_BODY_BYTES, owner: socket.remoteAddress ?? '' };
    const body = await this.#unverified.receive(request, limits);
    const sender = verdict.verify(body);
    identify();
    this.#admit(sender);
    return { sender, body, webhookId: `webhook ${headers['webhook-id']?.[0] ?? ''}` };
  }

  /** Lets a request of a known sender in.
   * @throws RequestProblem if it sends too much */
  #admit(sender: Sender): void {
    const nowMs = this.#nowMs();
    const bucket = this.#rates.of(senderId(sender), nowMs);
    if (bucket.take(nowMs)) return;
    throw new RequestProblem({
      status: 429,
      detail: 'this sender sends more events a second than it may',
      retryAfterSeconds: Math.max(1, Math.ceil(bucket.waitMs(nowMs) / 1000)),
    });
  }

  /** Counts more events of a request that was let in: the sender waits for them later. */
  #charge(id: string, events: number): void {
    this.#rates.of(id, this.#nowMs()).charge(events, this.#nowMs());
  }

  /** Stores the notices of all valid events.
   * @throws RequestProblem if that can't be done */
  async #store(sender: Sender, read: readonly ReadResult[]): Promise<Report> {
    const { metrics, writer } = this.#options;
    const report: Report = { accepted: 0, ignored: 0, duplicates: 0 };
    const notices: ChangeNotice[] = [];
    const taken = new Set<string>();
    for (const event of read) {
      const { result, notice, key } = this.#judge(event, senderId(sender), taken);
      metrics.events.inc({ sender: sender.kind, result });
      if (result === 'duplicate') report.duplicates += 1;
      else if (result.startsWith('ignored')) report.ignored += 1;
      if (notice !== undefined) notices.push(notice);
      if (key !== undefined) taken.add(key);
    }
    if (notices.length > 0) await this.#write(writer, notices);
    // Not before: an event that was refused comes again with its id.
    for (const key of taken) this.#seen.set(key, true);
    return { ...report, accepted: notices.length };
  }

  /** What is done with an event.
   * @param taken  keys of the events before it in the same request
   * @returns the result for metrics; of an event that is taken, the notice, and the key by which it
   *          is known again */
  #judge(
    event: ReadResult,
    sender: string,
    taken: ReadonlySet<string>,
  ): { readonly result: string; readonly notice?: ChangeNotice; readonly key?: string } {
    if ('problem' in event) return { result: 'invalid' };
    const { verdict, eventId } = event;
    if (verdict.kind === 'ignored') return { result: `ignored-${verdict.reason}` };
    if (eventId === undefined) return { result: 'notice', notice: verdict.notice };
    const key = seenKey(sender, eventId);
    if (taken.has(key) || this.#seen.has(key)) return { result: 'duplicate' };
    return { result: 'notice', notice: verdict.notice, key };
  }

  async #write(writer: NoticeWriter, notices: readonly ChangeNotice[]): Promise<void> {
    const { metrics } = this.#options;
    try {
      await writer.write(notices);
      metrics.notices.inc({ server: 'events', result: 'stored' }, notices.length);
    } catch (error) {
      metrics.notices.inc({ server: 'events', result: 'lost' }, notices.length);
      if (!(error instanceof NoticesUnavailable)) throw error;
      this.#warnings.warn(
        { reason: error.message },
        'events could not be taken: their senders were told to send them again',
      );
      throw unavailable('the notice could not be stored in Redis');
    }
  }

  #report({ socket }: IncomingMessage, { problem, reason }: RequestProblem): void {
    const { status, detail, field } = problem;
    this.#warnings.warn(
      { from: socket.remoteAddress, status, detail, field, reason },
      'a webhook request was refused',
    );
  }

  #unexpected(error: unknown): Problem {
    this.#options.log.error({ err: error }, 'a webhook request failed: a defect of sutler');
    return unavailable('the request could not be handled').problem;
  }

  #nowMs(): number {
    return this.#options.clock.nowMs();
  }
}

/** Of one length, however long the id. */
function seenKey(sender: string, eventId: string): string {
  const digest = createHash('sha256').update(eventId).digest('base64').slice(0, 22);
  return `${sender} ${digest}`;
}

function unavailable(detail: string): RequestProblem {
  return new RequestProblem({ status: 503, detail, retryAfterSeconds: RETRY_SECONDS });
}

interface IndexedProblem {
  readonly index: number;
  readonly problem: Problem;
}

function problemsOf(events: readonly ReadResult[]): readonly IndexedProblem[] {
  return events.flatMap((event, index) =>
    'problem' in event ? [{ index, problem: event.problem }] : [],
  );
}

function listProblems(problems: readonly IndexedProblem[]): readonly object[] {
  return problems
    .slice(0, MAX_REPORTED)
    .map(({ index, problem }) => ({ index, ...problemJson(problem) }));
}
