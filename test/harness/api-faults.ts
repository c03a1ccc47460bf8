import type { IncomingMessage, ServerResponse } from 'node:http';
import { ApiError } from '../../sandbox/api/api-error.ts';
import type { Intercept } from '../../sandbox/api/http/handler.ts';
import type { RequestInfo } from '../../sandbox/api/http/request-info.ts';

/** What a fault does to a request. */
export type FaultAction =
  /** Answers with this code and does nothing else. 429 and 503 may carry a Retry-After. */
  | {
      readonly kind: 'status';
      readonly code: number;
      readonly retryAfterSeconds?: number;
      readonly message?: string;
    }
  /** Handles the request after a delay. */
  | { readonly kind: 'delay'; readonly delayMs: number }
  /** Closes the connection without handling the request. */
  | { readonly kind: 'reset' }
  /** Handles the request and closes the connection instead of answering: the client can't know
   * whether it had an effect. */
  | { readonly kind: 'lose-answer' };

/** A fault for the next requests that match. Members that are left out match every request. */
export interface Fault {
  readonly action: FaultAction;
  readonly verb?: RequestInfo['verb'];
  readonly plural?: string;
  readonly name?: string;
  readonly subresource?: string;
  /** How many requests it hits; default: 1. Infinity hits all until it is cancelled. */
  readonly times?: number;
}

interface Armed {
  readonly fault: Fault;
  left: number;
}

/** Faults for tests. The first one that was injected and matches is applied. */
class Faults {
  readonly #armed: Armed[] = [];

  /** @returns cancels the fault */
  inject(fault: Fault): () => void {
    const armed: Armed = { fault, left: fault.times ?? 1 };
    this.#armed.push(armed);
    return () => {
      armed.left = 0;
    };
  }

  clear(): void {
    this.#armed.length = 0;
  }

  /** The action for this request; counts as one use of the fault. */
  take(info: RequestInfo): FaultAction | undefined {
    const armed = this.#armed.find(({ fault, left }) => left > 0 && matches(fault, info));
    if (armed === undefined) return undefined;
    armed.left -= 1;
    return armed.fault.action;
  }
}

function matches(fault: Fault, info: RequestInfo): boolean {
  return (
    (fault.verb === undefined || fault.verb === info.verb) &&
    (fault.plural === undefined || fault.plural === info.plural) &&
    (fault.name === undefined || fault.name === info.name) &&
    (fault.subresource === undefined || fault.subresource === info.subresource)
  );
}

const REASONS: Readonly<Record<number, string>> = {
  401: 'Unauthorized',
  403: 'Forbidden',
  404: 'NotFound',
  409: 'Conflict',
  410: 'Expired',
  422: 'Invalid',
  429: 'TooManyRequests',
  500: 'InternalError',
  503: 'ServiceUnavailable',
  504: 'Timeout',
};

/** Applies a fault to a request.
 * @returns whether the request is to be handled now
 * @throws  ApiError where the fault is an answer */
async function applyFault(
  fault: FaultAction,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<boolean> {
  switch (fault.kind) {
    case 'delay':
      await new Promise((resolve) => setTimeout(resolve, fault.delayMs));
      return !response.destroyed;
    case 'reset':
      request.socket.destroy();
      return false;
    case 'lose-answer':
      response.writeHead = () => {
        request.socket.destroy();
        return response;
      };
      return true;
    case 'status': {
      const seconds = fault.retryAfterSeconds;
      throw new ApiError({
        code: fault.code,
        reason: REASONS[fault.code] ?? '',
        message: fault.message ?? `injected fault: ${fault.code}`,
        ...(seconds === undefined ? {} : { details: { retryAfterSeconds: seconds } }),
      });
    }
  }
}

/** Counts requests by verb and resource. */
class RequestCounts {
  readonly #counts = new Map<string, number>();

  add({ verb, plural, subresource, query }: RequestInfo): void {
    const part = subresource === undefined ? '' : `/${subresource}`;
    // Whoever lists one object wants to know the version of the collection.
    const key = `${verb} ${plural}${part}${query.get('limit') === '1' ? ' limit=1' : ''}`;
    this.#counts.set(key, (this.#counts.get(key) ?? 0) + 1);
  }

  /** By 'verb plural[/subresource][ limit=1]', e.g. `{ 'create persistentvolumes': 1000 }`. */
  snapshot(): Record<string, number> {
    return Object.fromEntries([...this.#counts].sort(([a], [b]) => a.localeCompare(b)));
  }

  reset(): void {
    this.#counts.clear();
  }
}

/** Counts the requests to a sandbox API, and lets them fail. */
export function interceptRequests() {
  const faults = new Faults();
  const requests = new RequestCounts();
  const intercept: Intercept = async (info, request, response) => {
    requests.add(info);
    const fault = faults.take(info);
    return fault === undefined || applyFault(fault, request, response);
  };
  return { faults, requests, intercept };
}
