import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Clock } from '../runtime/clock.ts';
import { RareWarnings } from '../runtime/rare-warnings.ts';
import type { Logger } from '../runtime/log.ts';
import { networkOf } from '../runtime/network-of.ts';
import { RequestMemory } from '../runtime/request-memory.ts';
import type { ChangeNotice } from './change-notice.ts';
import { type NoticeWriter, HintsUnavailable } from './notice-writer.ts';
import type { WebhookMetrics } from './metrics.ts';
import { bodyFormat } from './parse/content-type.ts';
import { readEvents, type ReadRequest } from './parse/read-events.ts';
import { kindOfProblem, type Problem, problemJson, RequestProblem } from './problem.ts';
import { ClientGone, receiveBody } from './receive-body.ts';
import { SeenEvents } from './seen-events.ts';
import { discardBody, sendProblem, sendText } from './send-answer.ts';
import type { Authenticator } from './senders/authenticator.ts';
import { FailureBudget } from './senders/failure-budget.ts';
import { HeldRefusals } from './senders/held-refusals.ts';
import type { SenderConnections } from './senders/sender-connections.ts';
import { type Sender, senderId } from './senders/sender.ts';
import { SenderRates } from './senders/sender-rates.ts';

const MAX_BODY_BYTES = 2 * 1024 * 1024;
/** Bodies that are being received, all together. */
const MAX_MEMORY_BYTES = 32 * 1024 * 1024;
/** The same for bodies whose sender is not known before they are there. */
const MAX_UNVERIFIED_BYTES = 16 * 1024 * 1024;
/** A body to be verified, from a network that has sent many with wrong signatures. */
const MAX_SUSPECT_BYTES = 256 * 1024;
/** How long somebody waits for the answer who sends without a valid credential again and again. */
const HOLD_MS = 1_000;
/** Events of all senders that are read in a second, unless one alone may send more. They take a
 * third of a CPU, so that the rest of the process is not delayed. */
const TOTAL_PER_SECOND = 1_000;
/** So many bytes count as one more event: what is read costs as much as how often. */
const EVENT_BYTES = 4 * 1024;
const RETRY_SECONDS = 2;
/** Problems of one batch that are reported. */
const MAX_REPORTED = 100;

export interface EventsServerOptions {
  readonly authenticator: Authenticator;
  readonly connections: SenderConnections;
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

/** Answers POST /events: takes the hints of events into Redis, and then says so. */
export class EventsServer {
  readonly #options: EventsServerOptions;
  readonly #rates: SenderRates;
  readonly #failures = new FailureBudget();
  readonly #held = new HeldRefusals();
  readonly #seen = new SeenEvents();
  readonly #memory = new RequestMemory(MAX_MEMORY_BYTES);
  readonly #unverified = new RequestMemory(MAX_UNVERIFIED_BYTES);
  readonly #warnings: RareWarnings;

  constructor(options: EventsServerOptions) {
    const { clock, log, maxEventsPerSecond: perSecond } = options;
    this.#options = options;
    this.#warnings = new RareWarnings(log, clock);
    const nowMs = clock.nowMs();
    const totalPerSecond = Math.max(TOTAL_PER_SECOND, perSecond);
    this.#rates = new SenderRates({ perSecond, totalPerSecond, nowMs });
  }

  /** Answers a request, whatever is wrong with it. */
  async answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    try {
      await this.#take(request, response);
    } catch (error) {
      if (error instanceof ClientGone) return;
      const problem = error instanceof RequestProblem ? error.problem : this.#unexpected(error);
      if (error instanceof RequestProblem) this.#report(request, error);
      this.#options.metrics.refused.inc({ reason: kindOfProblem(problem) });
      sendProblem(request, response, problem);
    }
  }

  async #take(request: IncomingMessage, response: ServerResponse): Promise<void> {
    if (this.#options.stopping.aborted) throw unavailable('the process stops');
    const { sender, body, webhookId } = await this.#receive(request);
    const id = senderId(sender);
    if (webhookId !== undefined && this.#seen.has(id, webhookId, this.#nowMs())) {
      this.#options.metrics.events.inc({ sender: sender.kind, result: 'duplicate' });
      return sendReport(request, response, { accepted: 0, ignored: 0, duplicates: 1 });
    }
    this.#rates.charge(id, Math.floor(body.length / EVENT_BYTES), this.#nowMs());
    const read = readEvents(request.headersDistinct, body);
    this.#rates.charge(id, Math.max(0, read.events.length - 1), this.#nowMs());
    const report = await this.#store(sender, read);
    if (webhookId !== undefined) this.#seen.add(id, webhookId, this.#nowMs());
    const problems = problemsOf(read);
    if (problems.length > 0 && problems.length === read.events.length)
      return this.#refuseAll(request, response, read);
    sendReport(request, response, report, problems);
  }

  /** Finds out who sends, and receives the body: before that, if the headers say who. */
  async #receive(request: IncomingMessage): Promise<Delivery> {
    const { authenticator } = this.#options;
    const verdict = await this.#withHold(request, () => authenticator.readHeaders(request));
    const { headersDistinct: headers } = request;
    if (verdict.kind === 'known') {
      const { sender } = verdict;
      await this.#admit(request, sender);
      bodyFormat(headers);
      const limits = { maxBytes: MAX_BODY_BYTES, memory: this.#memory, owner: senderId(sender) };
      return { sender, body: await receiveBody(request, limits), webhookId: undefined };
    }
    const limits = this.#unverifiedLimits(request);
    const { sender, body } = await this.#withHold(request, async () => {
      bodyFormat(headers);
      const received = await receiveBody(request, limits);
      return { sender: verdict.verify(received), body: received };
    });
    await this.#admit(request, sender);
    return { sender, body, webhookId: `webhook ${headers['webhook-id']?.[0] ?? ''}` };
  }

  #unverifiedLimits({ socket }: IncomingMessage) {
    const address = socket.remoteAddress ?? '';
    const isSuspect = this.#failures.isSpent(address, this.#nowMs());
    return {
      maxBytes: isSuspect ? MAX_SUSPECT_BYTES : MAX_BODY_BYTES,
      memory: this.#unverified,
      owner: networkOf(address),
    };
  }

  /** Lets a request of a known sender in.
   * @throws RequestProblem if it sends too much */
  async #admit(request: IncomingMessage, sender: Sender): Promise<void> {
    const { socket } = request;
    const id = senderId(sender);
    if (sender.kind !== 'network') this.#options.connections.identify(socket, id);
    const waitMs = this.#rates.take(id, this.#nowMs());
    if (waitMs === 0) return;
    discardBody(request, false);
    await this.#holdInLine(request, id);
    throw new RequestProblem({
      status: 429,
      detail: 'this sender sends more events a second than it may',
      retryAfterSeconds: Math.max(1, Math.ceil(waitMs / 1000)),
    });
  }

  /** Looks for a credential. Who has shown none again and again waits for the refusal. */
  async #withHold<T>(request: IncomingMessage, look: () => T | Promise<T>): Promise<T> {
    try {
      return await look();
    } catch (error) {
      const address = request.socket.remoteAddress ?? '';
      const isSpent = this.#failures.isSpent(address, this.#nowMs());
      this.#failures.countFailure(address, this.#nowMs());
      discardBody(request, !isSpent);
      if (isSpent) await this.#hold();
      throw error;
    }
  }

  /** Holds the refusal of a request until it is its turn among those of its sender. Where too many
   * wait already the connection ends. */
  async #holdInLine({ socket }: IncomingMessage, sender: string): Promise<void> {
    const holdMs = this.#held.begin(sender);
    if (holdMs === undefined) {
      this.#options.metrics.refused.inc({ reason: 'too-many' });
      socket.destroy();
      throw new ClientGone('the sender has too many requests that wait for a refusal');
    }
    await this.#hold(holdMs);
    this.#held.end(sender);
  }

  #hold(ms = HOLD_MS): Promise<void> {
    return this.#options.clock.sleep(ms);
  }

  /** Stores the hints of all valid events.
   * @throws RequestProblem if that can't be done */
  async #store(sender: Sender, read: ReadRequest): Promise<Report> {
    const { metrics, writer } = this.#options;
    const id = senderId(sender);
    const report: Report = { accepted: 0, ignored: 0, duplicates: 0 };
    const hints: ChangeNotice[] = [];
    const taken = new Set<string>();
    for (const event of read.events) {
      const result = this.#judge(event, id, taken);
      metrics.events.inc({ sender: sender.kind, result });
      if (result === 'duplicate') report.duplicates += 1;
      else if (result.startsWith('ignored')) report.ignored += 1;
      if (result !== 'hint' || 'problem' in event || event.verdict.kind !== 'hint') continue;
      hints.push(event.verdict.hint);
      if (event.eventId !== undefined) taken.add(event.eventId);
    }
    if (hints.length > 0) await this.#write(writer, hints);
    for (const eventId of taken) this.#seen.add(id, eventId, this.#nowMs());
    return { ...report, accepted: hints.length };
  }

  /** What is done with an event, for metrics.
   * @param taken  ids of events before it in the same request */
  #judge(event: ReadRequest['events'][number], sender: string, taken: ReadonlySet<string>): string {
    if ('problem' in event) return 'invalid';
    const { verdict, eventId } = event;
    if (verdict.kind === 'ignored') return `ignored-${verdict.reason}`;
    if (eventId === undefined) return 'hint';
    const isKnown = taken.has(eventId) || this.#seen.has(sender, eventId, this.#nowMs());
    return isKnown ? 'duplicate' : 'hint';
  }

  async #write(writer: NoticeWriter, hints: readonly ChangeNotice[]): Promise<void> {
    const { metrics } = this.#options;
    try {
      await writer.write(hints);
      metrics.hints.inc({ server: 'events', result: 'stored' }, hints.length);
    } catch (error) {
      metrics.hints.inc({ server: 'events', result: 'lost' }, hints.length);
      if (!(error instanceof HintsUnavailable)) throw error;
      this.#warnings.warn(
        { reason: error.message },
        'events could not be taken: their senders were told to send them again',
      );
      throw unavailable('the hint could not be stored in Redis');
    }
  }

  #refuseAll(request: IncomingMessage, response: ServerResponse, read: ReadRequest): void {
    const [first] = problemsOf(read);
    if (first === undefined) return;
    this.#options.metrics.refused.inc({ reason: kindOfProblem(first.problem) });
    this.#report(request, new RequestProblem(first.problem));
    sendProblem(request, response, first.problem, { problems: listProblems(problemsOf(read)) });
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

function unavailable(detail: string): RequestProblem {
  return new RequestProblem({ status: 503, detail, retryAfterSeconds: RETRY_SECONDS });
}

interface IndexedProblem {
  readonly index: number;
  readonly problem: Problem;
}

function problemsOf({ events }: ReadRequest): readonly IndexedProblem[] {
  return events.flatMap((event, index) =>
    'problem' in event ? [{ index, problem: event.problem }] : [],
  );
}

function listProblems(problems: readonly IndexedProblem[]): readonly object[] {
  return problems
    .slice(0, MAX_REPORTED)
    .map(({ index, problem }) => ({ index, ...problemJson(problem) }));
}

/** Says what became of the events. */
function sendReport(
  request: IncomingMessage,
  response: ServerResponse,
  report: Report,
  problems: readonly IndexedProblem[] = [],
): void {
  const more = problems.length === 0 ? {} : { problems: listProblems(problems) };
  const text = JSON.stringify({ ...report, ...more });
  sendText(request, response, { status: 202, type: 'application/json', text });
}
