import { webhookFlags } from '#src/webhooks/flags.ts';
import { openWebhooks } from '#src/webhooks/open-webhooks.ts';
import { openRedis } from '#src/redis/connection.ts';
import { redisFlags } from '#src/redis/flags.ts';
import { processFlags } from '#src/runtime/process-flags.ts';
import { runProcess } from '#src/runtime/process.ts';

/* The servers for webhooks as ingest has them, alone in a process, so that its CPU time and memory
 * are theirs. */
await runProcess(
  { host: process, argv: process.argv.slice(2), known: {} },
  {
    name: 'webhooks',
    summary: 'takes webhooks for bench:webhooks',
    table: { ...processFlags, ...redisFlags, ...webhookFlags },
    start: async (context) => {
      const { flags, log, closers } = context;
      const link = openRedis({ url: flags.redisUrl, role: 'plain', log });
      closers.add('Redis', () => link.close());
      context.announce(await openWebhooks(context, { link, prefix: flags.redisPrefix }));
    },
  },
);
