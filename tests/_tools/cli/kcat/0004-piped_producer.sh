#!/bin/bash
# From kcat (https://github.com/edenhill/kcat, commit ab6ce81), Copyright (c) Magnus Edenhill;
# licence: LICENSE in this folder.
#

set -e
source helpers.sh


#
# Verify that piping messages to the producer works.
#


topic=$(make_topic_name)



echo "msg1" | $KCAT -P -t $topic
