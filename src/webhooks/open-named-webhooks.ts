import type { redisFlags } from '../redis/flags.ts';
import type { RedisLink } from '../redis/connection.ts';
import type { ProcessContext } from '../runtime/process.ts';
import type { processFlags } from '../runtime/process-flags.ts';
import type { webhookFlags } from './flags.ts';

type Table = typeof processFlags & typeof redisFlags & typeof webhookFlags;

/** Starts the servers for webhooks. Without flags for them, not even their code is loaded.
 * @returns their addresses, for `announce`
 * @throws UsageError as openWebhooks does */
export async function openNamedWebhooks(
  context: ProcessContext<Table>,
  link: RedisLink,
): Promise<Readonly<Record<string, string>>> {
  const { webhookAddress, admissionAddress, redisPrefix: prefix } = context.flags;
  if (webhookAddress === '' && admissionAddress === '') return {};
  const { openWebhooks } = await import('./open-webhooks.ts');
  return openWebhooks(context, { link, prefix });
}
