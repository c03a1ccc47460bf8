import { type DescMessage, fromBinary, type MessageShape } from '@bufbuild/protobuf';
import { methodsByPath } from '../csi/methods.ts';
import { collectSecretValues, redact } from '../csi/redact.ts';
import { codeName } from '../csi/status.ts';
import { redactDriverText, redactSecrets, WITHHELD } from '../csi/redact-secrets.ts';
import { isFields } from '../runtime/json.ts';
import type { Logger } from '../runtime/log.ts';
import { traceIdIn } from '../runtime/trace-id.ts';
import type { DriverCall, Reply } from './driver-calls.ts';

/** Logs a call with its messages, as csi-lib-utils connection/connection.go LogGRPC does at -v=5.
 * Removes fields marked csi_secret from messages, and their values from the driver's answer. */
export function logCall(log: Logger, call: DriverCall, reply: Reply, durationMs: number): void {
  const method = methodsByPath.get(call.path);
  const driverSaid = reply.kind === 'driver';
  const request = readMessage(method?.input, call.message);
  const response = readMessage(method?.output, driverSaid ? reply.message : undefined);
  const secrets = 'message' in request ? collectSecretValues(...request.message) : undefined;
  const details = driverSaid ? redactAnswer(reply.details, secrets) : reply.details;
  const trace = traceIdIn(call.headers['traceparent']?.toString());
  log.debug(
    {
      method: call.path.slice(0, 200),
      caller: call.caller,
      ...(trace === undefined ? {} : { trace }),
      code: codeName(reply.code),
      ...(reply.details === '' ? {} : { details }),
      driverSaid,
      notForwarded: reply.kind === 'not-forwarded',
      ms: durationMs,
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
  // Without a descriptor, any byte may be secret.
  if (schema === undefined) return { shown: `${bytes.length} bytes of an unknown message` };
  try {
    return { message: [schema, fromBinary(schema, bytes)] };
  } catch {
    return { shown: `${bytes.length} bytes that do not decode` };
  }
}

/** Removes the request's secrets from a text of the driver, or from all texts in its response.
 * @param secrets  undefined if the request can't be read */
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
