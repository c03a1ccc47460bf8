import { fromBinary, type DescMessage } from '@bufbuild/protobuf';
import { methodsByPath } from '../csi/methods.ts';
import { redact, redactText, secretValues } from '../csi/redact.ts';
import { codeName } from '../csi/status.ts';
import type { Logger } from '../runtime/log.ts';

/** What one finished call looked like; messages are plain protobuf bytes, undefined where there is
 * none or it can't be read. */
export interface CallRecord {
  readonly path: string;
  /** Who called. */
  readonly caller: string;
  /** W3C traceparent, if the caller sent one. */
  readonly trace: string | undefined;
  readonly request: Uint8Array | undefined;
  readonly response: Uint8Array | undefined;
  readonly code: number;
  readonly details: string;
  readonly driverSaid: boolean;
  readonly notForwarded: boolean;
  readonly durationMs: number;
}

/** Writes calls with their messages, as upstream does at -v=5: secrets stripped by the descriptor,
 * and from the driver's words. */
export function logCall(log: Logger, call: CallRecord): void {
  const method = methodsByPath.get(call.path);
  const request = read(method?.input, call.request);
  const response = read(method?.output, call.response);
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

function read(
  schema: DescMessage | undefined,
  bytes: Uint8Array | undefined,
): { readonly shown: unknown; readonly secrets: readonly string[] } {
  if (bytes === undefined) return { shown: null, secrets: [] };
  // Nothing says which of its bytes are secret, so none are shown.
  if (schema === undefined)
    return { shown: `${bytes.length} bytes of an unknown message`, secrets: [] };
  try {
    const message = fromBinary(schema, bytes);
    return { shown: redact(schema, message), secrets: secretValues(schema, message) };
  } catch {
    return { shown: `${bytes.length} bytes that do not decode`, secrets: [] };
  }
}
