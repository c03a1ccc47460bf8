import { randomUUID } from 'node:crypto';

/* A claim and its volume are one trace of W3C trace context. Its id is the claim's UID, so no
 * process has to store it or pass it on. */

const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

/** Returns the id of a claim's trace, 32 hexadecimal digits; undefined if its UID is no UUID. */
export function traceId(uid: string): string | undefined {
  return UUID.test(uid) ? uid.replaceAll('-', '') : undefined;
}

/** Makes the metadata of a new span in the claim's trace. Drivers with OpenTelemetry make it the
 * parent of their own spans. */
export function traceHeaders(uid: string): Readonly<Record<string, string>> {
  const id = traceId(uid);
  return id === undefined ? {} : { traceparent: `00-${id}-${newSpanId()}-01` };
}

/** From a UUID, since Node makes those from random bytes in stock. */
function newSpanId(): string {
  return randomUUID().slice(19).replace('-', '');
}

/** Reads the trace's id from a `traceparent`; undefined if it can't be read. */
export function traceIdIn(traceparent: string | undefined): string | undefined {
  return /^[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-/.exec(traceparent ?? '')?.[1];
}
