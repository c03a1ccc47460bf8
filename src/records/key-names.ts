import { keyPrefix } from '../redis/key-names.ts';

/** Hash of one volume under way; queue/volume-record. */
export function volumeRecordKey(prefix: string, driver: string, id: string): string {
  return `${keyPrefix(prefix)}:volume:${driver}:${id}`;
}

/** Hash of a driver's open records: record id to job key; queue/volume-record. */
export function openRecordsKey(prefix: string, driver: string): string {
  return `${keyPrefix(prefix)}:open:${driver}`;
}

/** Hash that says since when what Redis holds of a driver can be relied on; records/incarnation.ts.
 */
export function incarnationKey(prefix: string, driver: string): string {
  return `${keyPrefix(prefix)}:blessing:${driver}`;
}

/** Hash that names the one gateway of a driver that gets calls; queue/active-gateway. */
export function activeGatewayKey(prefix: string, driver: string): string {
  return `${keyPrefix(prefix)}:gateway:${driver}`;
}

/** Hash of volumes that audits found unknown: handle to the time; records/audit-ledger.ts. */
export function auditKey(prefix: string, driver: string): string {
  return `${keyPrefix(prefix)}:audit:${driver}`;
}

/** List of records that operators dropped, the latest first; records/forget.ts. */
export function forgottenKey(prefix: string, driver: string): string {
  return `${keyPrefix(prefix)}:forgotten:${driver}`;
}
