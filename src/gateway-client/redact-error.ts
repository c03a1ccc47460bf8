// What of a failed call may be shown. Used by client.ts, so that no other part of sutler ever has
// the driver's own words.
import { type DescMessage, fromBinary } from '@bufbuild/protobuf';
import { collectSecretValues } from '../csi/redact.ts';
import { CANCELED_DETAILS, CsiError, DEADLINE_DETAILS } from '../csi/status.ts';
import { redactDriverText, WITHHELD } from '../csi/strike-secrets.ts';

/** Texts that this process made itself. */
const OWN_DETAILS: ReadonlySet<string> = new Set(['', CANCELED_DETAILS, DEADLINE_DETAILS]);

/** Removes the secrets of the request from the error of a call. Some drivers quote what they were
 * given, and the text of an error goes into events, logs, Redis and the dashboard. The error of a
 * request without secrets stays as it is.
 * @param o.showsShort  as for redactDriverText */
export function redactError(
  error: CsiError,
  sent: { readonly schema: DescMessage; readonly request: Uint8Array },
  o: { readonly showsShort: boolean },
): CsiError {
  if (error.notForwarded || OWN_DETAILS.has(error.details)) return error;
  const details = redactDetails(error.details, sent, o);
  if (details === error.details) return error;
  const { code, method, driverSaid, notForwarded, isGatewayFull, draining } = error;
  // Without its cause, which has the driver's text as it was received.
  return new CsiError({ code, method, driverSaid, notForwarded, isGatewayFull, draining, details });
}

function redactDetails(
  details: string,
  { schema, request }: { readonly schema: DescMessage; readonly request: Uint8Array },
  o: { readonly showsShort: boolean },
): string {
  let secrets: readonly string[];
  try {
    secrets = collectSecretValues(schema, fromBinary(schema, request));
  } catch {
    // A request that came encoded and does not decode: nobody knows its secrets.
    return WITHHELD.unsearchable;
  }
  return redactDriverText(details, secrets, o);
}
