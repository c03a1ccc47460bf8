import { randomBytes } from 'node:crypto';

/* The life of a claim and of its volume is one trace of W3C trace context. Its id is the claim's
 * UID, so that it needs no place to be kept in, and no process has to tell it to another. */

const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

/** The id of a claim's trace, 32 hexadecimal digits; undefined if its UID is no UUID. */
export function traceId(uid: string): string | undefined {
  return UUID.test(uid) ? uid.replaceAll('-', '') : undefined;
}

/** The metadata by which a call belongs to the trace of a claim: a new span of it, which drivers
 * with OpenTelemetry take for the parent of their own. */
export function traceHeaders(uid: string): Readonly<Record<string, string>> {
  const id = traceId(uid);
  return id === undefined ? {} : { traceparent: `00-${id}-${randomBytes(8).toString('hex')}-01` };
}

/** The id of the trace that a `traceparent` names; undefined if it can't be read. */
export function traceIdIn(traceparent: string | undefined): string | undefined {
  return /^[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-/.exec(traceparent ?? '')?.[1];
}
