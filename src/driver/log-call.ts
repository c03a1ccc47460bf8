import { type DescMessage, fromBinary, type MessageShape } from '@bufbuild/protobuf';
import { methodsByPath } from '../csi/methods.ts';
import { collectSecretValues, redact } from '../csi/redact.ts';
import { codeName } from '../csi/status.ts';
import { redactDriverText, redactSecrets, WITHHELD } from '../csi/redact-secrets.ts';
import { isFields } from '../runtime/json.ts';
import type { Logger } from '../runtime/log.ts';

/** A finished call. Messages are decompressed protobuf bytes; undefined if there is none or it
 * could not be decompressed. */
export interface CallRecord {
  readonly path: string;
  /** Name of the caller (Caller.name). */
  readonly caller: string;
  /** The id of the caller's trace. */
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
 * Fields marked csi_secret are removed from messages, and their values from all that the driver
 * answered. */
export function logCall(log: Logger, call: CallRecord): void {
  const method = methodsByPath.get(call.path);
  const request = readMessage(method?.input, call.request);
  const response = readMessage(method?.output, call.response);
  const secrets = 'message' in request ? collectSecretValues(...request.message) : undefined;
  const details = call.driverSaid ? redactAnswer(call.details, secrets) : call.details;
  log.debug(
    {
      method: call.path.slice(0, 200),
      caller: call.caller,
      ...(call.trace === undefined ? {} : { trace: call.trace }),
      code: codeName(call.code),
      ...(call.details === '' ? {} : { details }),
      driverSaid: call.driverSaid,
      notForwarded: call.notForwarded,
      ms: call.durationMs,
      request: 'message' in request ? redact(...request.message) : request.shown,
      response:
        'message' in response ? redactAnswer(redact(...response.message), secrets) : response.shown,
    },
    'CSI call',
  );
}

/** A decoded message, or what is logged instead of it. */
type Read =
  | { readonly message: readonly [DescMessage, MessageShape<DescMessage>] }
  | { readonly shown: string | null };

function readMessage(schema: DescMessage | undefined, bytes: Uint8Array | undefined): Read {
  if (bytes === undefined) return { shown: null };
  // Without a descriptor any byte may be secret, so none is shown.
  if (schema === undefined) return { shown: `${bytes.length} bytes of an unknown message` };
  try {
    return { message: [schema, fromBinary(schema, bytes)] };
  } catch {
    return { shown: `${bytes.length} bytes that do not decode` };
  }
}

/** Removes the secrets of the request from a text of the driver, or from all texts in its response.
 * @param secrets  undefined if they are not known, because the request can't be read */
function redactAnswer(answer: unknown, secrets: readonly string[] | undefined): unknown {
  if (secrets === undefined) return typeof answer === 'string' ? WITHHELD.unsearchable : answer;
  if (typeof answer === 'string') return redactDriverText(answer, secrets, { showsShort: false });
  if (Array.isArray(answer)) return answer.map((item) => redactAnswer(item, secrets));
  if (!isFields(answer)) return answer;
  return Object.fromEntries(
    Object.entries(answer).map(([key, value]) => [
      redactSecrets(key, secrets),
      redactAnswer(value, secrets),
    ]),
  );
}
