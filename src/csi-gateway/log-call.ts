import { type DescMessage, fromBinary } from '@bufbuild/protobuf';
import { methodsByPath } from '../csi/methods.ts';
import { collectSecretValues, redact, redactText } from '../csi/redact.ts';
import { codeName } from '../csi/status.ts';
import type { Logger } from '../runtime/log.ts';

/** A finished call. Messages are decompressed protobuf bytes; undefined if there is none or it
 * could not be decompressed. */
export interface CallRecord {
  readonly path: string;
  /** Name of the caller (Caller.name). */
  readonly caller: string;
  /** The caller's W3C traceparent header. */
  readonly trace: string | undefined;
  readonly request: Uint8Array | undefined;
  readonly response: Uint8Array | undefined;
  readonly code: number;
  readonly details: string;
  readonly driverSaid: boolean;
  readonly notForwarded: boolean;
  readonly durationMs: number;
}

/** Logs a call with its messages, as csi-lib-utils connection/connection.go LogGRPC does at -v=5.
 * Fields marked csi_secret are removed from messages, and their values from the driver's text. */
export function logCall(log: Logger, call: CallRecord): void {
  const method = methodsByPath.get(call.path);
  const request = render(method?.input, call.request);
  const response = render(method?.output, call.response);
  log.debug(
    {
      method: call.path.slice(0, 200),
      caller: call.caller,
      ...(call.trace === undefined ? {} : { trace: call.trace.slice(0, 100) }),
      code: codeName(call.code),
      ...(call.details === '' ? {} : { details: redactText(call.details, request.secrets) }),
      driverSaid: call.driverSaid,
      notForwarded: call.notForwarded,
      ms: call.durationMs,
      request: request.shown,
      response: response.shown,
    },
    'CSI call',
  );
}

function render(
  schema: DescMessage | undefined,
  bytes: Uint8Array | undefined,
): { readonly shown: unknown; readonly secrets: readonly string[] } {
  if (bytes === undefined) return { shown: null, secrets: [] };
  // Without a descriptor any byte may be secret, so none is shown.
  if (schema === undefined)
    return { shown: `${bytes.length} bytes of an unknown message`, secrets: [] };
  try {
    const message = fromBinary(schema, bytes);
    return { shown: redact(schema, message), secrets: collectSecretValues(schema, message) };
  } catch {
    return { shown: `${bytes.length} bytes that do not decode`, secrets: [] };
  }
}
