import { Agent, request } from 'undici';
import { messageOf } from '#src/runtime/error-message.ts';
import type { Clock } from '#src/runtime/clock.ts';
import type { CloudEvent } from './cloud-event.ts';

/** Where events are sent. */
export interface Sink {
  /** Sends one event, again where the answer asks for that.
   * @returns why it was dropped; undefined where it was taken */
  send(event: CloudEvent, stopping: AbortSignal): Promise<string | undefined>;
  close(): Promise<void>;
}

export interface SinkOptions {
  readonly url: string;
  /** PEM text of the authority that signed the sink's certificate; '' for the usual ones. */
  readonly ca: string;
  /** Bearer token; '' for none. */
  readonly token: string;
  readonly clock: Clock;
}

/** What Knative's sender tries again; every other refusal loses the event at once. */
const TRIED_AGAIN = new Set([404, 413, 425, 429, 502, 503, 504]);
/** It pauses this long before the attempts after the first one, and reads no Retry-After. */
const PAUSES_MS = [100, 200, 400, 800, 1600];

/** Sends events as Knative's ApiServerSource does. */
export function openSink({ url, ca, token, clock }: SinkOptions): Sink {
  const dispatcher = new Agent({ connect: ca === '' ? {} : { ca } });
  const authorization: Record<string, string> =
    token === '' ? {} : { authorization: `Bearer ${token}` };

  async function attempt({ headers, body }: CloudEvent, signal: AbortSignal): Promise<Attempt> {
    try {
      const answer = await request(url, {
        method: 'POST',
        dispatcher,
        signal,
        headers: { ...headers, ...authorization },
        body,
      });
      await answer.body.dump();
      const { statusCode } = answer;
      if (statusCode >= 200 && statusCode < 300) return { isTaken: true };
      const mayRepeat = TRIED_AGAIN.has(statusCode);
      return { isTaken: false, mayRepeat, why: `HTTP ${statusCode}` };
    } catch (error) {
      return { isTaken: false, mayRepeat: true, why: messageOf(error) };
    }
  }

  return {
    async send(event, stopping) {
      for (const pauseMs of [...PAUSES_MS, undefined]) {
        const result = await attempt(event, stopping);
        if (result.isTaken) return undefined;
        if (!result.mayRepeat || pauseMs === undefined || stopping.aborted) return result.why;
        await clock.sleep(pauseMs, stopping);
      }
      return undefined;
    },
    close: () => dispatcher.close(),
  };
}

type Attempt =
  | { readonly isTaken: true }
  | { readonly isTaken: false; readonly mayRepeat: boolean; readonly why: string };
